// pch.cpp — the precompiled header of the tests needs one file to hang on.
