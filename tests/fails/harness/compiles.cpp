// compiles.cpp — compiles, although its text contains the sentence: harness: this is the sentence
