// host_checks.hpp — the checks of `ddpxx doctor` that need only this host.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <net/if.h>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <vector>

#include <ATen/detail/CUDAHooksInterface.h>
#include <caffe2/core/common.h>
#include <torch/version.h>

#include <ddpxx/comm/device.hpp>
#include <ddpxx/comm/listen.hpp>
#include <ddpxx/comm/own_addresses.hpp>
#include <ddpxx/comm/resolve.hpp>
#include <ddpxx/comm/socket_address.hpp>
#include <ddpxx/comm/unused_gpu.hpp>
#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/core/host_name.hpp>
#include <ddpxx/core/machine_memory.hpp>
#include <ddpxx/core/units.hpp>
#include <ddpxx/storage/open_storage.hpp>
#include <ddpxx/version.hpp>

#include "findings.hpp"
#include "net_measurement.hpp"

/// The LibTorch that runs is the one that this program was compiled with: its C++ interface changes with each version.
/// Its build options are read, because at::show_config() starts CUDA, after which no rank can be forked.
inline Finding check_versions() {
  const auto& options = caffe2::GetBuildOptions();
  const auto version = options.find("TORCH_VERSION");
  const std::string running = version == options.end() || version->second.empty() ? "unknown" : version->second;
  const std::string text = ddpxx::version_line() + ", LibTorch " + running + ", C++11 ABI " +
                           (_GLIBCXX_USE_CXX11_ABI != 0 ? "on" : "off") + ", compiler " + __VERSION__;
  const std::string built = TORCH_VERSION;
  if (running == "unknown" || built.starts_with(running) || running.starts_with(built)) return Finding::ok(text);
  return Finding::failed(ddpxx::Errc::config, text + ", but this program was compiled with LibTorch " + built,
                         "compile it again, or let LD_LIBRARY_PATH name the LibTorch that it was compiled with");
}

inline Finding check_gpus() {
  const bool is_built = at::detail::getCUDAHooks().isBuilt();
  const int gpus = ddpxx::detail::num_gpus();
  if (gpus > 0) return Finding::ok(std::to_string(gpus) + " that this program can use");
  const auto unused = ddpxx::detail::unused_gpu_text(is_built);
  if (!unused.empty())
    return Finding::warning("none that this program can use, although the host shows one",
                            is_built ? "look at nvidia-smi and CUDA_VISIBLE_DEVICES"
                                     : "build with ./dev build --cuda, or link ddpxx::cuda");
  return Finding::ok("none; ranks compute on the CPU");
}

inline Finding check_interfaces() {
  std::string text;
  for (const auto& entry : ddpxx::detail::interface_addresses())
    if ((entry.flags & IFF_LOOPBACK) == 0) text += (text.empty() ? "" : ", ") + entry.name + ' ' + entry.address.text();
  if (text.empty()) return Finding::ok("only loopback: ranks on this host can meet, those of other hosts cannot");
  return Finding::ok(text);
}

/// The interface by which this host reaches the master, and whether the other hosts can reach this one by it.
inline Finding check_route(const std::string& master, bool several_hosts) {
  if (const auto chosen = ddpxx::environment("GLOO_SOCKET_IFNAME")) {
    const auto addresses = ddpxx::detail::interface_addresses();
    std::istringstream names{*chosen};
    for (std::string name; std::getline(names, name, ',');)
      if (std::ranges::find(addresses, name, &ddpxx::detail::InterfaceAddress::name) == addresses.end())
        return Finding::failed(ddpxx::Errc::peer,
                               "GLOO_SOCKET_IFNAME=" + *chosen + ": " + name + " is not an interface that is up here",
                               "unset it: the interface of the route to MASTER_ADDR is chosen then");
    return Finding::ok(*chosen + ", which GLOO_SOCKET_IFNAME names");
  }
  if (master.empty()) return Finding::skipped("master=HOST shows the route to the host of rank 0");
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{5};
  std::string text;
  bool outward = false;
  for (const auto& address : ddpxx::resolve(master, 9, until)) {
    const auto local = ddpxx::local_address_towards(address);
    outward = outward || (!local.empty() && !ddpxx::is_loopback(local));
    text += (text.empty() ? "" : ", ") + (local.empty() ? "no route" : ddpxx::interface_of(local) + ' ' + local) +
            " to " + address.text();
  }
  text = master + " by " + text;
  if (several_hosts && !outward)
    return Finding::warning(text,
                            "other hosts cannot use a loopback address: give MASTER_ADDR a name or an address that "
                            "they can reach, or correct /etc/hosts");
  return Finding::ok(text);
}

/// Whether a store could listen at the ports that launchers use by default.
inline Finding check_ports() {
  std::string used, range;
  for (const int port : {29400, 29500})
    if (!ddpxx::detail::listen_at(*ddpxx::SocketAddress::parse("0.0.0.0", static_cast<std::uint16_t>(port))))
      used += (used.empty() ? "" : ", ") + std::to_string(port);
  std::ifstream file{"/proc/sys/net/ipv4/ip_local_port_range"};
  int first = 0, last = 0;
  if (file >> first >> last) range = "; connections get ports " + std::to_string(first) + " to " + std::to_string(last);
  if (!used.empty())
    return Finding::warning("in use: " + used + range,
                            "a second job on this host needs another --master-port or --rdzv-endpoint");
  return Finding::ok("29400 and 29500 are free" + range);
}

inline Finding check_limits() {
  constexpr rlim_t kFiles = 1024, kProcesses = 4096;
  const auto limit_of = [](auto what) {
    struct rlimit limit {};
    return ::getrlimit(what, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
  };
  const auto number = [](rlim_t limit) { return limit == RLIM_INFINITY ? "unlimited" : std::to_string(limit); };
  const auto files = limit_of(RLIMIT_NOFILE), memory = limit_of(RLIMIT_MEMLOCK), processes = limit_of(RLIMIT_NPROC);
  const auto text = "nofile " + number(files) + ", memlock " +
                    (memory == RLIM_INFINITY ? "unlimited" : ddpxx::bytes_text(memory)) + ", nproc " +
                    number(processes);
  if (files < kFiles) return Finding::warning(text, "raise the number of open files: ulimit -n 65536");
  if (processes < kProcesses) return Finding::warning(text, "each rank has about ten threads; raise ulimit -u");
  return Finding::ok(text);
}

inline Finding check_shared_memory() {
  constexpr std::uint64_t kEnough = std::uint64_t{64} << 20U;
  struct statvfs space {};
  if (::statvfs("/dev/shm", &space) != 0)
    return Finding::warning("/dev/shm does not exist", "NCCL needs it: mount a tmpfs there");
  const auto free = std::uint64_t{space.f_bavail} * space.f_frsize,
             size = std::uint64_t{space.f_blocks} * space.f_frsize;
  const auto text = ddpxx::bytes_text(free) + " free of " + ddpxx::bytes_text(size);
  if (free <= kEnough)
    return Finding::warning(text, "NCCL needs more: docker run --shm-size=8g, or an emptyDir with medium Memory");
  return Finding::ok(text);
}

/// The memory that is free, for runs that end with code 7.
inline Finding check_memory(int ranks_here) {
  constexpr std::uint64_t kEnough = std::uint64_t{1} << 30U;
  const auto available = ddpxx::free_memory_bytes(), total = ddpxx::machine_memory_bytes();
  const auto share = available / static_cast<std::uint64_t>(ranks_here);
  auto text = ddpxx::bytes_text(available) + " free of " + ddpxx::bytes_text(total);
  if (ranks_here > 1) text += ", " + ddpxx::bytes_text(share) + " for each of " + std::to_string(ranks_here) + " ranks";
  const std::string hint =
      "if a run ends with code 7: compare `mingpt plan` with it; smaller data.batch_size, recompute, "
      "ZeRO or FSDP need less";
  return share < kEnough ? Finding::warning(text, hint) : Finding{Finding::Verdict::ok, text, hint};
}

/// Writes an object to `place` as a snapshot is written (in a folder: write, fsync, rename), reads it back, and removes
/// it. `name` is a name that no other process uses.
inline Finding check_place(const std::string& place, const std::string& name) {
  constexpr std::size_t kBytes = std::size_t{16} << 20U;
  if (place.empty()) return Finding::skipped("save_dir=PLACE writes a file to that place and removes it");
  std::vector<std::byte> content(kBytes), found(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) content[i] = static_cast<std::byte>(i * 31 % 251);
  std::chrono::duration<double> seconds{};
  try {
    const auto storage = ddpxx::open_storage(place);
    storage->prepare();
    const auto start = std::chrono::steady_clock::now();
    storage->write(name, std::vector<ddpxx::Bytes>{content});
    seconds = std::chrono::steady_clock::now() - start;
    try {
      storage->read(name, 0, found);
    } catch (const ddpxx::Error&) {
      storage->remove(name);
      throw;
    }
    storage->remove(name);
  } catch (const ddpxx::Error& error) {
    return Finding::failed(error.code(), error.what(),
                           "save_dir must name a place where this user may make, read and "
                           "remove files, with room for a snapshot");
  }
  if (found != content)
    return Finding::failed(ddpxx::Errc::storage, "what was written to " + place + " reads differently",
                           "look for errors of the disk or the file server");
  return {Finding::Verdict::ok, place + " is writable, " + rate_text(static_cast<double>(kBytes) / seconds.count()),
          "if a run ends with code 4: `ddpxx snapshot verify PLACE` reads every byte"};
}
