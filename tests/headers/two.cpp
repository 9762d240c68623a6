// two.cpp — the second file of the program: see one.cpp.
#include <ddpxx/ddpxx.hpp>
#include <ddpxx/testing.hpp>

int major_version_in_two();
int major_version_in_two() { return ddpxx::kVersion.major; }
