// s3_writer.cpp — writes one object, or removes it if the size is 0; a test kills this program. Arguments: PLACE NAME
// BYTES.
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
    const auto storage = ddpxx::open_storage(words[1]);
    storage->write(words[2], parts);
    if (content.empty()) storage->remove(words[2]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
