// Which processors ranks get on machines whose topology is in a folder like /sys.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/launch/plan/bind_ranks.hpp>
#include <ddpxx/launch/plan/cpu_topology.hpp>

#include "../error_of.hpp"
#include "../temporary_folder.hpp"

namespace ddpxx::bind_ranks_test {
namespace {

using namespace detail;

/// Two sockets with a NUMA node each. Processors 0 to 5 are on node 0, 6 to 11 on node 1; each core has two processors,
/// n and n + 1; a cache is shared by four processors, and by two at the end of a node.
class Machine {
 public:
  Machine() {
    write("sys/devices/system/node/online", "0-1");
    for (int node = 0; node < 2; ++node)
      write("sys/devices/system/node/node" + std::to_string(node) + "/cpulist", node == 0 ? "0-5" : "6-11");
    for (int cpu = 0; cpu < 12; ++cpu) {
      const auto folder = "sys/devices/system/cpu/cpu" + std::to_string(cpu);
      const int core = cpu - cpu % 2, first = cpu / 6 * 6, cache = cpu % 6 < 4 ? first : first + 4;
      write(folder + "/topology/physical_package_id", std::to_string(cpu / 6));
      write(folder + "/topology/thread_siblings_list", std::to_string(core) + '-' + std::to_string(core + 1));
      write(folder + "/cache/index0/type", "Data");
      write(folder + "/cache/index0/level", "1");
      write(folder + "/cache/index0/shared_cpu_list", std::to_string(core) + '-' + std::to_string(core + 1));
      write(folder + "/cache/index3/type", "Unified");
      write(folder + "/cache/index3/level", "3");
      write(folder + "/cache/index3/shared_cpu_list",
            std::to_string(cache) + '-' + std::to_string(cache == first ? cache + 3 : cache + 1));
      write(folder + "/cache/index9/type", "Instruction");
      write(folder + "/cache/index9/level", "9");
      write(folder + "/cache/index9/shared_cpu_list", "0-11");
    }
  }

  void add_gpu(const std::string& address, int node, const std::string& uuid) {
    write("proc/driver/nvidia/gpus/" + address + "/information", "Model: \t NVIDIA\nGPU UUID: \t " + uuid + "\nBus");
    write("sys/bus/pci/devices/" + address + "/numa_node", std::to_string(node));
  }

  CpuTopology topology(const CpuSet& allowed = parse_cpu_list("0-11")) const { return {folder_ / "", allowed}; }

  std::vector<CpuSet> bind(CpuBinding binding, int ranks, const char* visible = nullptr) const {
    const auto all = topology();
    return bind_ranks(binding, ranks, all, all.nodes_of_gpus(visible));
  }

 private:
  void write(const std::string& name, const std::string& text) const {
    const auto path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream{path} << text << '\n';
  }

  TemporaryFolder folder_;
};

std::vector<CpuSet> lists(const std::vector<std::string>& texts) {
  std::vector<CpuSet> result;
  for (const auto& text : texts) result.push_back(parse_cpu_list(text));
  return result;
}

TEST(BindRanks, ReadsListsOfTheKernel) {
  EXPECT_EQ(parse_cpu_list("0-2,7"), (CpuSet{0, 1, 2, 7}));
  EXPECT_EQ(parse_cpu_list(""), CpuSet{});
  EXPECT_EQ(parse_cpu_list("5"), CpuSet{5});
  EXPECT_FALSE(allowed_cpus().empty());
}

TEST(BindRanks, SpreadsRanksOverTheNodesOfAMachineWithoutGPUs) {
  const Machine machine;
  EXPECT_EQ(machine.bind(CpuBinding::node, 4), lists({"0-5", "0-5", "6-11", "6-11"}));
  EXPECT_EQ(machine.bind(CpuBinding::node, 1), lists({"0-5"}));
  EXPECT_EQ(machine.bind(CpuBinding::socket, 2), lists({"0-5", "6-11"}));
  EXPECT_EQ(machine.bind(CpuBinding::exclusive, 4), lists({"0-3", "4-5", "6-9", "10-11"}))
      << "three cores for two ranks: the first rank gets two";
  EXPECT_EQ(machine.bind(CpuBinding::core_complex, 6), lists({"0-3", "4-5", "0-3", "6-9", "10-11", "6-9"}))
      << "the larger cache first";
}

TEST(BindRanks, PutsARankNearItsGPU) {
  Machine machine;
  machine.add_gpu("0000:01:00.0", 1, "GPU-aa");
  machine.add_gpu("0000:02:00.0", 0, "GPU-bb");
  machine.add_gpu("0000:03:00.0", -1, "GPU-cc");
  EXPECT_EQ(machine.bind(CpuBinding::node, 3), lists({"6-11", "0-5", "0-5"}));
  EXPECT_EQ(machine.bind(CpuBinding::node, 2, "2,0"), lists({"0-5", "6-11"}));
  EXPECT_EQ(machine.bind(CpuBinding::node, 2, "GPU-a,GPU-bb"), lists({"6-11", "0-5"}));
  EXPECT_EQ(machine.bind(CpuBinding::node, 4), lists({"6-11", "0-5", "0-5", "6-11"})) << "the fourth shares GPU 0";
  EXPECT_EQ(machine.bind(CpuBinding::exclusive, 1), lists({"6-11"}));
  EXPECT_EQ(machine.bind(CpuBinding::exclusive, 3), lists({"6-11", "0-3", "4-5"}));
  EXPECT_EQ(machine.topology().nodes_of_gpus("0,9,1"), std::vector<int>{1}) << "as CUDA reads it";
}

TEST(BindRanks, GivesRanksThatShareAGPUCoresOfTheirOwn) {
  Machine machine;
  machine.add_gpu("0000:01:00.0", 1, "GPU-aa");
  machine.add_gpu("0000:02:00.0", 0, "GPU-bb");
  EXPECT_EQ(machine.bind(CpuBinding::exclusive, 5), lists({"6-7", "0-3", "8-9", "4-5", "10-11"}));
  EXPECT_EQ(machine.bind(CpuBinding::exclusive, 3, "1"), lists({"0-1", "2-3", "4-5"}));
  EXPECT_EQ(machine.bind(CpuBinding::core_complex, 4), lists({"6-9", "0-3", "10-11", "4-5"}));
  EXPECT_EQ(machine.bind(CpuBinding::node, 3), lists({"6-11", "0-5", "6-11"}));
  EXPECT_EQ(error_of([&] { machine.bind(CpuBinding::exclusive, 4, "1"); }),
            "--numa-binding exclusive: NUMA node 0 has 3 cores for 4 ranks");
}

TEST(BindRanks, UsesOnlyTheProcessorsThatAreAllowed) {
  Machine machine;
  const auto half = machine.topology(parse_cpu_list("2-4"));
  EXPECT_EQ(half.nodes().size(), 1U);
  EXPECT_EQ(bind_ranks(CpuBinding::node, 1, half, {}), lists({"2-4"}));
  EXPECT_THROW(bind_ranks(CpuBinding::exclusive, 3, half, {}), Error);
  EXPECT_EQ(
      error_of([&] { bind_ranks(CpuBinding::node, 1, half, {1}); }),
      "--numa-binding: local rank 0 would run on NUMA node 1, where its GPU is, and ddpxx-run may use no processor "
      "of that node");
  const auto none = machine.topology({});
  for (const auto binding : {CpuBinding::node, CpuBinding::socket, CpuBinding::exclusive, CpuBinding::core_complex})
    EXPECT_EQ(error_of([&] { bind_ranks(binding, 1, none, {}); }),
              "--numa-binding: the system does not tell which processors ddpxx-run may use: leave it out");
}

TEST(BindRanks, TakesAMachineWithoutNumaForOneNode) {
  const TemporaryFolder empty;
  const CpuTopology topology{empty / "", {0, 1}};
  EXPECT_EQ(bind_ranks(CpuBinding::exclusive, 2, topology, topology.nodes_of_gpus(nullptr)), lists({"0", "1"}));
}

}  // namespace
}  // namespace ddpxx::bind_ranks_test
