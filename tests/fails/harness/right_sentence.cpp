// right_sentence.cpp — fails to compile with the expected sentence.
static_assert(sizeof(int) == 0, "harness: this is the sentence");
