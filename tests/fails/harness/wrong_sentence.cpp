// wrong_sentence.cpp — fails to compile with another sentence.
static_assert(sizeof(int) == 0, "harness: this is another sentence");
