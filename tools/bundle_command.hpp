// bundle_command.hpp — `ddpxx bundle PROGRAM... to=FOLDER` copies programs with the libraries that they need into one
// folder, which runs on a machine without LibTorch.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/launch/sweep/shell_word.hpp>

#include "output_folder.hpp"

struct BundleArguments {
  std::string to = {};

  static constexpr auto describe() {
    return ddpxx::fields(ddpxx::field<&BundleArguments::to>(
        "Folder that is made: the programs in bin/, the libraries that they need in lib/"));
  }
};

/// A library's name, and the file in which the dynamic linker has found it.
using LoadedLibraries = std::map<std::string, std::filesystem::path>;

/// Whether a library belongs to the C library or to the driver of a GPU. These have to fit the machine's kernel and
/// hardware, and every machine has its own.
inline bool belongs_to_machine(std::string_view library) {
  static constexpr std::array kNames{"linux-vdso.", "linux-gate.", "ld-linux",     "ld-musl",   "ld64.so",
                                     "libc.so",     "libm.so",     "libmvec.so",   "libdl.so",  "libpthread.so",
                                     "librt.so",    "libutil.so",  "libresolv.so", "libanl.so", "libnss_",
                                     "libcuda.so",  "libnvidia-"};
  return std::ranges::any_of(kNames, [&](const char* name) { return library.starts_with(name); });
}

/// Returns what the command writes to stdout.
/// Errors  `config` if it ends with another code than 0.
inline std::string output_of(const std::vector<std::string>& command) {
  std::string text;
  std::FILE* pipe = ::popen(ddpxx::detail::shell_line(command).c_str(), "r");
  if (pipe == nullptr) throw ddpxx::Error{ddpxx::Errc::memory, "no process could be started for " + command.front()};
  std::array<char, 4096> piece{};
  while (const auto size = std::fread(piece.data(), 1, piece.size(), pipe)) text.append(piece.data(), size);
  if (::pclose(pipe) != 0)
    throw ddpxx::Error{ddpxx::Errc::config, "bundle: this command has failed: " + ddpxx::detail::shell_line(command)};
  return text;
}

/// The libraries that a program loads, by `ldd`, without those of the machine.
/// Errors  `config` for a file that is not a program with libraries, and for a library that is not found.
inline LoadedLibraries loaded_libraries(const std::filesystem::path& program) {
  LoadedLibraries libraries;
  std::istringstream lines{output_of({"env", "-u", "LD_PRELOAD", "ldd", program.string()})};
  // The lines are NAME => PATH (ADDRESS), NAME => not found, or, for a name that is a path, PATH (ADDRESS).
  for (std::string line; std::getline(lines, line);) {
    static constexpr std::string_view kArrow = " => ";
    const auto arrow = line.find(kArrow);
    const auto start = line.find_first_not_of("\t ");
    if (arrow == std::string::npos) {
      const auto word = line.substr(std::min(start, line.size()), line.find(" (") - std::min(start, line.size()));
      if (word.find('/') != std::string::npos && !belongs_to_machine(std::filesystem::path{word}.filename().string()))
        throw ddpxx::Error{ddpxx::Errc::config,
                           "bundle: " + program.string() + " loads " + word +
                               " by this path, also on another machine: give the library a soname, and link it again"};
      continue;
    }
    // The ldd of some systems, such as Arch Linux, has the path of the dynamic linker in front of the arrow, too.
    const auto name = std::filesystem::path{line.substr(start, arrow - start)}.filename().string();
    if (belongs_to_machine(name)) continue;
    const auto path = line.substr(arrow + kArrow.size(), line.rfind(" (") - arrow - kArrow.size());
    if (path.starts_with("not found"))
      throw ddpxx::Error{ddpxx::Errc::config,
                         "bundle: " + program.string() + " needs " + name + ", which this machine does not have"};
    if (name.starts_with("libtorch_cuda"))
      throw ddpxx::Error{ddpxx::Errc::config,
                         "bundle: " + program.string() +
                             " is built for GPUs, and CUDA's libraries load parts that they do not name; bundle "
                             "a program that is built without ddpxx::cuda, or use a container"};
    libraries.emplace(name, path);
  }
  return libraries;
}

inline void copy_to(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code error;
  std::filesystem::copy_file(from, to, error);
  if (error)
    throw ddpxx::Error{ddpxx::Errc::storage,
                       "bundle: cannot copy " + from.string() + " to " + to.string() + ": " + error.message()};
}

/// Whether two paths name one file; false where one of them cannot be examined.
inline bool is_one_file(const std::filesystem::path& one, const std::filesystem::path& other) {
  std::error_code error;
  return std::filesystem::equivalent(one, other, error) && !error;
}

/// Errors  `config` for a program that is not there, for a script, and for two of one name: they go to one folder.
inline void check_programs(const std::vector<std::filesystem::path>& programs) {
  std::map<std::filesystem::path, std::filesystem::path> names;
  for (const auto& program : programs) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(program, error))
      throw ddpxx::Error{ddpxx::Errc::config, "bundle: there is no program " + program.string()};
    static constexpr std::string_view kElf = "\177ELF";
    std::string start(kElf.size(), '\0');
    if (std::ifstream file{program, std::ios::binary}; file.read(start.data(), kElf.size()) && start != kElf)
      throw ddpxx::Error{ddpxx::Errc::config,
                         "bundle: " + program.string() + " is not a compiled program: name the one that it starts"};
    const auto [first, is_new] = names.emplace(program.filename(), program);
    if (!is_new)
      throw ddpxx::Error{ddpxx::Errc::config, "bundle: " + first->second.string() + " and " + program.string() +
                                                  " have one name: bundle them into a folder each"};
  }
}

/// The libraries of all programs.
/// Errors  `config` if two programs load different libraries of one name.
inline LoadedLibraries libraries_of(const std::vector<std::filesystem::path>& programs) {
  LoadedLibraries libraries;
  for (const auto& program : programs)
    for (const auto& [name, path] : loaded_libraries(std::filesystem::absolute(program))) {
      const auto& first = libraries.emplace(name, path).first->second;
      if (!is_one_file(first, path))
        throw ddpxx::Error{ddpxx::Errc::config, "bundle: one program loads " + first.string() + ", another one " +
                                                    path.string() + ": bundle them into a folder each"};
    }
  return libraries;
}

/// Copies into bin/ and lib/ of the folder, and returns the bytes of the libraries. The linker looks for libraries
/// beside the program first, because patchelf writes an RPATH into it, which also holds for the libraries that have
/// none of their own; those of LibTorch look beside themselves.
inline std::uintmax_t fill_bundle(const std::filesystem::path& folder,
                                  const std::vector<std::filesystem::path>& programs,
                                  const LoadedLibraries& libraries) {
  for (const char* part : {"bin", "lib"}) make_output_folder(folder / part);
  std::uintmax_t bytes = 0;
  for (const auto& [name, path] : libraries) {
    copy_to(path, folder / "lib" / name);
    std::error_code unknown;
    if (const auto size = std::filesystem::file_size(path, unknown); !unknown) bytes += size;
  }
  for (const auto& program : programs) {
    const auto copy = folder / "bin" / program.filename();
    copy_to(program, copy);
    std::error_code refused;  // patchelf says so then
    std::filesystem::permissions(copy, std::filesystem::perms::owner_write, std::filesystem::perm_options::add,
                                 refused);
    output_of({"patchelf", "--force-rpath", "--set-rpath", "$ORIGIN/../lib", copy.string()});
    for (const auto& [name, path] : loaded_libraries(std::filesystem::absolute(copy)))
      if (!is_one_file(path.parent_path(), folder / "lib"))
        throw ddpxx::Error{ddpxx::Errc::storage,
                           "bundle: " + copy.string() + " would load " + path.string() + " and not its copy"};
  }
  return bytes;
}

/// Makes the folder, or nothing.
inline void bundle(const std::vector<std::filesystem::path>& programs, const std::filesystem::path& folder) {
  check_programs(programs);
  const auto libraries = libraries_of(programs);
  try {
    output_of({"patchelf", "--version"});
  } catch (const ddpxx::Error&) {
    throw ddpxx::Error{ddpxx::Errc::config, "bundle needs the program patchelf: install Debian's package of that name"};
  }
  std::error_code absent;
  const bool was_there = std::filesystem::exists(folder, absent);
  if (was_there && !std::filesystem::is_empty(folder, absent))
    throw ddpxx::Error{ddpxx::Errc::config, "to=" + folder.string() + " has files already: name a new folder"};
  std::uintmax_t bytes = 0;
  try {
    bytes = fill_bundle(folder, programs, libraries);
  } catch (...) {  // so that the command can be given again
    std::error_code ignored;
    for (const char* part : {"bin", "lib"}) std::filesystem::remove_all(folder / part, ignored);
    if (!was_there) std::filesystem::remove(folder, ignored);
    throw;
  }
  std::cout << programs.size() << (programs.size() == 1 ? " program" : " programs") << " and " << libraries.size()
            << " libraries (" << bytes / 1'000'000 << " MB) in " << folder.string() << '\n';
}

inline void bundle_command(int argc, char** argv) {
  std::vector<std::filesystem::path> programs;
  std::vector<const char*> settings{argv[0]};
  std::vector<std::size_t> numbers;  // of the settings, on the command line of ddpxx
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    std::error_code absent;  // a path may have an =, too
    const bool is_setting = word.find('=') != std::string_view::npos && !std::filesystem::exists(word, absent);
    if (word.starts_with("-") || is_setting || std::string_view{argv[i - 1]} == "--to") {
      settings.push_back(argv[i]);
      numbers.push_back(static_cast<std::size_t>(i) + 1);
    } else {
      programs.emplace_back(word);
    }
  }
  const auto arguments = ddpxx::parse_config<BundleArguments>(
      static_cast<int>(settings.size()), settings.data(),
      {.program = "ddpxx bundle", .more_usage = "PROGRAM...", .argument_numbers = numbers});
  if (programs.empty() || arguments.to.empty())
    throw ddpxx::Error{ddpxx::Errc::config,
                       "ddpxx bundle needs programs and a folder: ddpxx bundle PROGRAM... to=FOLDER"};
  bundle(programs, arguments.to);
}
