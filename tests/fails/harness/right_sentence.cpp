// right_sentence.cpp — fails as the harness expects.
static_assert(sizeof(int) == 0, "harness: this is the sentence");
