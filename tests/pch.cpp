// pch.cpp — CMake needs a source file to build the precompiled header of the tests.
