// gpt2_config.cpp — reads a config.json of Hugging Face. It is compiled by g++, which reads braces around a value of
// nlohmann::json in another way than Clang, by which the other tests are compiled.
#include <iostream>

#include <ddpxx/core/error.hpp>
#include <ddpxx/nn/gpt2_description.hpp>

int main() {
  try {
    std::cout << ddpxx::read_gpt2_config(R"({"model_type": "gpt2", "vocab_size": 96})").vocab_size << " tokens\n";
  } catch (const ddpxx::Error& error) {
    std::cout << error.what() << '\n';
  }
}
