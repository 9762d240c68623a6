// one.cpp — together with two.cpp: a definition that two files of a program may not share does not link.
#include <ddpxx/ddpxx.hpp>
#include <ddpxx/testing.hpp>

int major_version_in_two();

int main() { return major_version_in_two() == ddpxx::kVersion.major ? 0 : 1; }
