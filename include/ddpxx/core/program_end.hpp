// ddpxx/core/program_end.hpp — the end of a program that has done what its arguments ask for.
#pragma once

#include <exception>

namespace ddpxx {

/// Thrown where a program has printed what its arguments ask for, such as --help, and is to end with a code.
/// `run_program` ends the process with it; a main() without run_program catches it and returns the code.
class ProgramEnd : public std::exception {
 public:
  explicit ProgramEnd(int code) noexcept : code_{code} {}

  int code() const noexcept { return code_; }
  const char* what() const noexcept override {
    return "the program has printed what its arguments ask for, and ends here: use run_program, or catch ProgramEnd "
           "and return its code()";
  }

 private:
  int code_;
};

}  // namespace ddpxx
