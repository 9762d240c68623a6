// one.cpp — together with two.cpp: linking fails if a header has a definition that two files of a program may not
// share.
#include <ddpxx/ddpxx.hpp>
#include <ddpxx/testing.hpp>

int major_version_in_two();

int main() { return major_version_in_two() == ddpxx::kVersion.major ? 0 : 1; }
