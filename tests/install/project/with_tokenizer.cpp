// with_tokenizer.cpp — uses the tokenizer, which needs PCRE2.
#include <exception>
#include <iostream>

#include <ddpxx/data/tokenizer.hpp>

int main(int, char** argv) {
  try {
    const ddpxx::Tokenizer tokenizer{argv[1]};
    const auto ids = tokenizer.encode("Hello, I'm a language model,");
    std::cout << tokenizer.decode(ids) << '\n';
  } catch (const std::exception& error) {
    std::cout << error.what() << '\n';
  }
}
