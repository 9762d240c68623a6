// wrong_sentence.cpp — fails, but says something else.
static_assert(sizeof(int) == 0, "harness: this is another sentence");
