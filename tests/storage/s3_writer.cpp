// s3_writer.cpp — writes one object; a test kills it. Arguments: PLACE NAME BYTES.
#include <array>
#include <cstddef>
#include <iostream>
#include <string>
#include <vector>

#include <ddpxx/storage/open_storage.hpp>

int main(int count, char** words) {
  if (count != 4) return 2;
  try {
    const std::vector<std::byte> content(std::stoul(words[3]));
    const std::array<ddpxx::Bytes, 1> parts{content};
    ddpxx::open_storage(words[1])->write(words[2], parts);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
