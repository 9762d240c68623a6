// main.cpp — a training program outside of ddpxx's tree.
#include <cstdio>

#include <ddpxx/ddpxx.hpp>

int main() { std::printf("ddpxx %d.%d.%d\n", ddpxx::kVersion.major, ddpxx::kVersion.minor, ddpxx::kVersion.patch); }
