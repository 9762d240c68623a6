// compiles.cpp — does not fail, though its text holds it: harness: this is the sentence
