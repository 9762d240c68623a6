#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/host_name.hpp>
#include <ddpxx/snapshot/load_model.hpp>
#include <ddpxx/snapshot/safetensors.hpp>
#include <ddpxx/snapshot/snapshot.hpp>
#include <ddpxx/snapshot/snapshot_choice.hpp>

#include "../error_of.hpp"
#include "../temporary_folder.hpp"
#include "../without_threads.hpp"
#include "memory_storage.hpp"

namespace ddpxx::snapshot_test {
namespace {

namespace fs = std::filesystem;

Snapshot snapshot_of(std::int64_t step) {
  Snapshot snapshot{.run = {.step = step, .epoch = 2, .position = 48}, .world_size = 3};
  snapshot.run.settings = {{"training.seed", "5"}, {"data.path", "\"a \\\"quoted\\\" name\""}};
  snapshot.tensors.emplace("model.weight", at::full({3, 4}, static_cast<double>(step)));
  snapshot.tensors.emplace("model.none", at::zeros({0, 3}));
  snapshot.tensors.emplace("optimizer.step", at::full({}, static_cast<double>(step)));
  snapshot.tensors.emplace("random.0", at::arange(16, at::kByte));
  return snapshot;
}

bool same(const Snapshot& got, const Snapshot& expected) {
  const auto same_setting = [](const Setting& a, const Setting& b) { return a.path == b.path && a.value == b.value; };
  return got.run.step == expected.run.step && got.run.epoch == expected.run.epoch &&
         got.run.position == expected.run.position && got.world_size == expected.world_size &&
         std::equal(got.run.settings.begin(), got.run.settings.end(), expected.run.settings.begin(),
                    expected.run.settings.end(), same_setting) &&
         std::equal(got.tensors.begin(), got.tensors.end(), expected.tensors.begin(), expected.tensors.end(),
                    [](const auto& a, const auto& b) { return a.first == b.first && at::equal(a.second, b.second); });
}

/// Every file below a folder, in order.
std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator{folder})
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

/// The only tensor file of a step.
fs::path tensors_of(const fs::path& step) {
  for (const auto& path : files_in(step))
    if (path.extension() == ".safetensors") return path;
  throw std::runtime_error{step.string() + " has no tensors"};
}

constexpr int kForeignException = 98;

/// The exit code of a process, or -1 if a signal has ended it.
int exit_code(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : -1; }

/// Runs `body` with a failpoint in a child process; returns its wait status.
template <class Body>
int in_child(const std::string& failpoint, Body body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::setenv("DDPXX_FAILPOINT", failpoint.c_str(), 1);
    try {
      body();
    } catch (const Error& error) {
      std::_Exit(static_cast<int>(error.code()));
    } catch (...) {
      std::_Exit(kForeignException);
    }
    std::_Exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return status;
}

TEST(Snapshot, ComesBackAsItWasSaved) {
  const TemporaryFolder folder;
  save_snapshot(folder / "deep" / "er", snapshot_of(7));
  const auto loaded = load_snapshot(folder / "deep" / "er");
  ASSERT_TRUE(loaded);
  EXPECT_TRUE(same(*loaded, snapshot_of(7)));
}

TEST(Snapshot, IsReadWhereTheSystemGivesNoThread) {
  MemoryStorage objects;
  save_snapshot(objects, snapshot_of(7));
  without_threads([&] { EXPECT_TRUE(same(load_snapshot(objects).value(), snapshot_of(7))); });
}

TEST(Snapshot, IsReadableAsPlainSafetensors) {
  const TemporaryFolder folder;
  save_snapshot(folder.path(), snapshot_of(7));
  const auto file = read_safetensors(tensors_of(folder / "step-00000007"), Checksum::optional);
  EXPECT_TRUE(at::equal(file.tensors.at("model.weight"), at::full({3, 4}, 7.0)));
  EXPECT_EQ(file.tensors.at("model.none").sizes(), (at::IntArrayRef{0, 3}));
}

TEST(Snapshot, IsNoneWhereNoneWasSaved) {
  const TemporaryFolder folder;
  EXPECT_FALSE(load_snapshot(folder.path()));
  EXPECT_FALSE(load_snapshot(folder / "no such folder"));
  fs::create_directories(folder / "step-00000003");
  folder.file("step-00000003/rank-0.safetensors", "begun and never published");
  EXPECT_FALSE(load_snapshot(folder.path())) << "files without a manifest must not count as a snapshot";
}

TEST(Snapshot, TheNewestIsTaken) {
  const TemporaryFolder folder;
  for (const auto step : {9, 100, 20}) save_snapshot(folder.path(), snapshot_of(step));
  EXPECT_EQ(load_snapshot(folder.path())->run.step, 100);
}

/// A snapshot of this step with other weights.
Snapshot another_of(std::int64_t step) {
  auto snapshot = snapshot_of(step);
  snapshot.tensors.at("model.weight").zero_();
  return snapshot;
}

TEST(Snapshot, OfOneStepIsPublishedOnceAndKeepsItsContent) {
  const TemporaryFolder folder;
  save_snapshot(folder.path(), snapshot_of(7));
  const auto files = files_in(folder.path());
  try {
    save_snapshot(folder.path(), another_of(7));
    FAIL() << "a snapshot was replaced";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::storage);
    EXPECT_THAT(error.what(), testing::HasSubstr("step-00000007/manifest.json is there already"));
  }
  EXPECT_TRUE(same(load_snapshot(folder.path()).value(), snapshot_of(7)));
  EXPECT_EQ(files_in(folder.path()), files);
}

/// A folder in which another program publishes a snapshot of step 7 while this one writes its tensors.
class OvertakenFolder : public Storage {
 public:
  explicit OvertakenFolder(const fs::path& path) : folder_{path} {}
  std::string full_name(const std::string& name) const override { return folder_.full_name(name); }
  void prepare() override { folder_.prepare(); }
  void write(const std::string& name, std::span<const Bytes> parts) override {
    folder_.write(name, parts);
    save_snapshot(folder_, snapshot_of(7));
  }
  bool create(const std::string& name, Bytes content) override { return folder_.create(name, content); }
  void read(const std::string& name, std::uint64_t offset, std::span<std::byte> room) override {
    folder_.read(name, offset, room);
  }
  std::optional<std::string> read_text(const std::string& name, std::uint64_t max_bytes) override {
    return folder_.read_text(name, max_bytes);
  }
  std::vector<StoredObject> list(const std::string& front) override { return folder_.list(front); }
  void remove(const std::string& name) override { folder_.remove(name); }

 private:
  Folder folder_;
};

TEST(Snapshot, ThatComesTooLateTakesItsFileAway) {
  const TemporaryFolder folder;
  OvertakenFolder storage{folder.path()};
  EXPECT_THROW(save_snapshot(storage, another_of(7)), Error);
  EXPECT_TRUE(same(load_snapshot(folder.path()).value(), snapshot_of(7)));
  EXPECT_THAT(files_in(folder.path()), testing::SizeIs(2))
      << "expected the other program's manifest and tensor file only";
}

TEST(Snapshot, KeepsItsMetricsAndItsDate) {
  const TemporaryFolder folder;
  auto snapshot = snapshot_of(7);
  snapshot.run.metrics = {{"loss", 1.5}};
  snapshot.written_at = 1'000'000'000;
  save_snapshot(folder.path(), snapshot);
  const auto loaded = load_snapshot(folder.path()).value();
  EXPECT_EQ(loaded.run.metrics, snapshot.run.metrics);
  EXPECT_EQ(loaded.written_at, snapshot.written_at);
  save_snapshot(folder / "new", snapshot_of(7));
  EXPECT_GE(load_snapshot(folder / "new")->written_at, snapshot.written_at)
      << "without a given date, the date of saving is stored";
}

TEST(Snapshot, IsReadOnlyAsFarAsItIsWanted) {
  const TemporaryFolder folder;
  auto snapshot = snapshot_of(7);
  snapshot.tensors.emplace("optimizer.large", at::zeros({3'000'000}));
  save_snapshot(folder.path(), snapshot);
  const auto is_of_model = [](std::string_view name) { return name.starts_with("model."); };
  EXPECT_THAT(load_snapshot(folder.path(), is_of_model)->tensors, testing::SizeIs(2));
  // Damage a byte of optimizer.large.
  const auto file = tensors_of(folder / "step-00000007");
  std::fstream{file, std::ios::in | std::ios::out | std::ios::binary}.seekp(6'000'000).put('x');
  EXPECT_THAT(load_snapshot(folder.path(), is_of_model)->tensors, testing::SizeIs(2));
  EXPECT_THROW(load_snapshot(folder.path()), Error);
}

TEST(Snapshot, KeepsTheArgumentsAHashAndTheOptimizersName) {
  const TemporaryFolder folder;
  auto snapshot = snapshot_of(7);
  snapshot.run.overrides = "- \"a=1\"\n- \"b=***\"\n";
  snapshot.run.config_hash = "0123456789abcdef";
  snapshot.run.optimizer = "Adam";
  save_snapshot(folder.path(), snapshot);
  const auto loaded = load_snapshot(folder.path()).value();
  EXPECT_EQ(loaded.run.overrides, snapshot.run.overrides);
  EXPECT_EQ(loaded.run.config_hash, snapshot.run.config_hash);
  EXPECT_EQ(loaded.run.optimizer, "Adam");
  snapshot.run.config_hash = "\x1b[2J";
  EXPECT_THROW(save_snapshot(folder / "other", snapshot), Error);
}

TEST(Snapshot, OfAVersionThatDidNotKeepThemLoads) {
  const TemporaryFolder folder;
  save_snapshot(folder.path(), snapshot_of(7));
  const auto path = folder / "step-00000007" / "manifest.json";
  auto text = read_file(path, Errc::storage);
  text.resize(text.rfind(detail::kManifestSum));
  for (const char* key : {"overrides", "config_hash", "optimizer"}) {
    const auto member = std::string{",\""} + key + "\":\"\"";
    ASSERT_NE(text.find(member), std::string::npos) << key;
    text.erase(text.find(member), member.size());
  }
  const auto sum = sums_text({crc32c(bytes_of(text))});
  write_file_atomic(path, text + std::string{detail::kManifestSum} + sum + std::string{detail::kManifestEnd});
  EXPECT_TRUE(same(load_snapshot(folder.path()).value(), snapshot_of(7)));
}

TEST(Snapshot, OfOneStepIsReplacedOnlyByTheStartThatPublishedIt) {
  const TemporaryFolder folder;
  Folder storage{folder.path()};
  const Snapshots snapshots{storage};
  Shard shard{"all.safetensors", {whole_slice("model.x", at::ones({2}))}};
  shard.write(storage, Snapshots::folder_of(7));
  const auto manifest = [&](const std::string& start, std::int64_t epoch) {
    Manifest made;
    made.run.step = 7;
    made.run.epoch = epoch;
    made.starts = {"000000000000", start};
    const std::string reports[] = {shard.report()};
    add_reports(made, reports);
    return made;
  };
  const std::string ours = "0123456789ab", theirs = "ba9876543210";
  EXPECT_FALSE(snapshots.try_commit(manifest(ours, 1)));
  EXPECT_FALSE(snapshots.try_commit(manifest(ours, 2)));
  EXPECT_THAT(snapshots.try_commit(manifest(theirs, 3)).value_or(""), testing::HasSubstr("is there already"));
  EXPECT_EQ(snapshots.read(snapshots.list().front()).manifest.value().run.epoch, 2);

  auto earlier = manifest(theirs, 0);
  earlier.run.step = 6;
  EXPECT_THAT(snapshots.find_later_of_another(earlier, {}).value_or(""), testing::HasSubstr("step-00000007/manifest"));
  EXPECT_FALSE(snapshots.find_later_of_another(earlier, {7})) << "a snapshot that was there before must not count";
  earlier.starts.back() = ours;
  EXPECT_FALSE(snapshots.find_later_of_another(earlier, {}));
}

TEST(Snapshot, WhereSomeAreThereAndNoneIsWholeIsAnErrorWithEveryReason) {
  const TemporaryFolder folder;
  for (const auto step : {1, 2}) save_snapshot(folder.path(), snapshot_of(step));
  fs::resize_file(tensors_of(folder / "step-00000001"), 9);
  fs::remove(tensors_of(folder / "step-00000002"));
  try {
    load_snapshot(folder.path());
    FAIL() << "a snapshot was loaded although all are damaged";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::storage);
    EXPECT_THAT(error.what(), testing::ContainsRegex(
                                  "step-00000002/manifest.json is not usable: its file all.*safetensors is missing"));
    EXPECT_THAT(error.what(), testing::HasSubstr(".safetensors has 9 bytes, not"));
  }
}

TEST(Snapshot, AFlippedBitOfAnyByteIsFound) {
  const TemporaryFolder folder;
  save_snapshot(folder.path(), snapshot_of(1));
  save_snapshot(folder.path(), snapshot_of(2));
  int fell_back = 0, harmless = 0;
  for (const auto& path : files_in(folder / "step-00000002")) {
    const auto whole = read_file(path, Errc::storage);
    for (std::size_t byte = 0; byte < whole.size(); ++byte) {
      auto flipped = whole;
      flipped[byte] = static_cast<char>(flipped[byte] ^ (1 << (byte % 8)));  // all bits would take a minute
      std::ofstream{path, std::ios::binary} << flipped;
      const auto loaded = load_snapshot(folder.path()).value();
      ASSERT_TRUE(same(loaded, snapshot_of(loaded.run.step))) << path << " byte " << byte;
      ++(loaded.run.step == 1 ? fell_back : harmless);
    }
    std::ofstream{path, std::ios::binary} << whole;
  }
  EXPECT_GT(fell_back, 1000);
  EXPECT_EQ(harmless, 0) << "every bit of a small file must be covered by a checksum";
}

TEST(Snapshot, AnyTruncationIsFound) {
  const TemporaryFolder folder;
  save_snapshot(folder.path(), snapshot_of(1));
  save_snapshot(folder.path(), snapshot_of(2));
  for (const auto& path : files_in(folder / "step-00000002")) {
    const auto whole = read_file(path, Errc::storage);
    for (std::size_t size = 0; size < whole.size(); ++size) {
      fs::resize_file(path, size);
      ASSERT_TRUE(same(load_snapshot(folder.path()).value(), snapshot_of(1))) << path << " cut to " << size;
      std::ofstream{path, std::ios::binary} << whole;
    }
    std::ofstream{path, std::ios::binary} << whole << 'x';
    EXPECT_TRUE(same(load_snapshot(folder.path()).value(), snapshot_of(1))) << path << " with an additional byte";
    std::ofstream{path, std::ios::binary} << whole;
  }
}

TEST(Snapshot, FilesOfAnotherStepAreNotTakenForItsOwn) {
  const TemporaryFolder folder;
  for (const auto step : {1, 2}) save_snapshot(folder.path(), snapshot_of(step));
  fs::copy_file(tensors_of(folder / "step-00000001"), tensors_of(folder / "step-00000002"),
                fs::copy_options::overwrite_existing);
  EXPECT_EQ(load_snapshot(folder.path())->run.step, 1);
  fs::copy_file(folder / "step-00000001" / "manifest.json", folder / "step-00000002" / "manifest.json",
                fs::copy_options::overwrite_existing);
  EXPECT_EQ(load_snapshot(folder.path())->run.step, 1);
}

TEST(Snapshot, WhoseRanksFilesWereExchangedIsNotTaken) {
  const TemporaryFolder folder;
  save_snapshot(folder.path(), snapshot_of(1));
  Folder storage{folder.path()};
  Manifest manifest;
  manifest.run.step = 2;
  std::vector<std::string> reports;
  for (const std::string rank : {"0", "1"}) {
    Shard shard{"rank-" + rank, {whole_slice("x." + rank, at::full({3}, std::stoi(rank)))}};
    shard.write(storage, Snapshots::folder_of(2));
    reports.push_back(shard.report());
  }
  add_reports(manifest, reports);
  EXPECT_FALSE(Snapshots{storage}.try_commit(manifest));
  EXPECT_EQ(load_snapshot(storage)->run.step, 2);
  const auto of_step_2 = folder / "step-00000002";
  ASSERT_EQ(fs::file_size(of_step_2 / "rank-0"), fs::file_size(of_step_2 / "rank-1"))
      << "the test needs files of equal sizes";
  fs::rename(of_step_2 / "rank-0", of_step_2 / "between");
  fs::rename(of_step_2 / "rank-1", of_step_2 / "rank-0");
  fs::rename(of_step_2 / "between", of_step_2 / "rank-1");
  EXPECT_EQ(load_snapshot(storage)->run.step, 1);
}

TEST(Snapshot, DamagedOnItsWayHereIsReadOnceMore) {
  MemoryStorage storage;
  for (const auto step : {1, 2}) save_snapshot(storage, snapshot_of(step));
  const auto files = storage.list("step-00000002/");
  ASSERT_EQ(files.size(), 2U);
  for (const auto& [file, size] : files) {
    for (std::uint64_t byte = 0; byte < size; byte += 7) {
      storage.flip_once[file] = byte;
      ASSERT_TRUE(same(load_snapshot(storage).value(), snapshot_of(2))) << file << " byte " << byte;
      ASSERT_TRUE(storage.flip_once.empty()) << "the test has damaged no reply";
    }
  }
}

TEST(Snapshots, LargerThanAReaderTakesAreNotPublished) {
  MemoryStorage storage;
  Manifest manifest;
  manifest.run.overrides = std::string(kMaxManifestBytes / 6, '\x01');  // each of these bytes takes six bytes in JSON
  try {
    Snapshots{storage}.try_commit(manifest);
    FAIL() << "a manifest that is too large to be read was written";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::storage);
    EXPECT_THAT(error.what(), testing::HasSubstr("step-00000000/manifest.json would have 268435"));
  }
  EXPECT_TRUE(storage.objects.empty());
}

class KilledSave : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(EveryFailpoint, KilledSave,
                         testing::Values("file.before_write:kill@1", "file.after_write:kill@1",
                                         "file.after_fsync:kill@1", "file.after_publish:kill@1",
                                         "snapshot.before_commit:kill", "file.before_write:kill@2",
                                         "file.after_write:kill@2", "file.after_fsync:kill@2",
                                         "file.after_publish:kill@2", "snapshot.after_commit:kill"));

TEST_P(KilledSave, LeavesTheOldOneOrTheNewOneWhole) {
  const TemporaryFolder folder;
  save_snapshot(folder.path(), snapshot_of(1));
  ASSERT_TRUE(WIFSIGNALED(in_child(GetParam(), [&] { save_snapshot(folder.path(), snapshot_of(2)); })))
      << "the failpoint was not reached";
  const auto published =
      std::string{GetParam()} == "file.after_publish:kill@2" || std::string{GetParam()} == "snapshot.after_commit:kill";
  const auto loaded = load_snapshot(folder.path());
  ASSERT_TRUE(loaded);
  EXPECT_TRUE(same(*loaded, snapshot_of(published ? 2 : 1)));
}

class KilledPrune : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(EveryFailpoint, KilledPrune,
                         testing::Values("snapshot.before_remove:kill", "folder.before_remove:kill@1",
                                         "folder.after_remove:kill@1", "snapshot.after_remove_manifest:kill",
                                         "folder.before_remove:kill@2", "folder.after_remove:kill@2",
                                         "snapshot.after_remove:kill"));

TEST_P(KilledPrune, LeavesWhatIsKeptWholeAndTheRestToTheNextPrune) {
  const TemporaryFolder folder;
  for (const auto step : {1, 2}) save_snapshot(folder.path(), snapshot_of(step));
  const auto prune = [&] {
    Folder storage{folder.path()};
    Snapshots{storage}.prune({.last = 1}, {.of_the_place = true, .starts = {}});
  };
  ASSERT_TRUE(WIFSIGNALED(in_child(GetParam(), prune))) << "the failpoint was not reached";
  EXPECT_TRUE(same(load_snapshot(folder.path()).value(), snapshot_of(2)));
  prune();
  EXPECT_THAT(files_in(folder.path()), testing::SizeIs(2))
      << "expected the manifest and the tensor file of the newest snapshot only";
}

TEST(Snapshot, ThatIsRefusedTakesItsFileAway) {
  const TemporaryFolder folder;
  auto snapshot = snapshot_of(7);
  snapshot.run.config_hash = "not hexadecimal";
  EXPECT_THROW(save_snapshot(folder.path(), snapshot), Error);
  EXPECT_THAT(files_in(folder.path()), testing::IsEmpty());
}

/// A server that loses its answer to the request that creates the manifest, and carries the request out later.
class LateServer : public Storage {
 public:
  explicit LateServer(MemoryStorage& server) : server_{&server} {}
  void carry_out() { server_->create(name_, bytes_of(content_)); }
  std::string full_name(const std::string& name) const override { return server_->full_name(name); }
  void prepare() override {}
  void write(const std::string& name, std::span<const Bytes> parts) override { server_->write(name, parts); }
  bool create(const std::string& name, Bytes content) override {
    name_ = name;
    content_.assign(reinterpret_cast<const char*>(content.data()), content.size());
    throw Error{Errc::storage, "no answer"};
  }
  void read(const std::string& name, std::uint64_t offset, std::span<std::byte> room) override {
    server_->read(name, offset, room);
  }
  std::optional<std::string> read_text(const std::string& name, std::uint64_t max_bytes) override {
    return server_->read_text(name, max_bytes);
  }
  std::vector<StoredObject> list(const std::string& front) override { return server_->list(front); }
  void remove(const std::string& name) override { server_->remove(name); }

 private:
  MemoryStorage* server_;
  std::string name_, content_;
};

TEST(Snapshot, KeepsItsFileWhereAServerMayStillCreateItsManifest) {
  MemoryStorage objects;
  LateServer server{objects};
  EXPECT_THROW(save_snapshot(server, snapshot_of(7)), Error);
  server.carry_out();
  EXPECT_TRUE(same(load_snapshot(objects).value(), snapshot_of(7)));
}

TEST(Snapshot, MayLieBesideAFileWhoseNameBeginsLikeItsManifests) {
  const TemporaryFolder folder;
  folder.file("step-00000007/manifest.json.bak", "{}");
  save_snapshot(folder.path(), snapshot_of(7));
  EXPECT_TRUE(same(load_snapshot(folder.path()).value(), snapshot_of(7)));
}

TEST(Shard, ReportThatIsNoneIsAnErrorOfTheStorage) {
  Shard shard{"rank-0", {whole_slice("x", at::ones({2}))}};
  MemoryStorage storage;
  shard.write(storage, "");
  auto of_other_sums = shard.report();
  of_other_sums.replace(of_other_sums.find("\"crc32c\":\"") + 10, 1, "z");
  for (const std::string& report : {std::string{}, std::string{"[]"}, std::string{"{\"bytes\": -1}"}, of_other_sums}) {
    Manifest manifest;
    try {
      add_reports(manifest, std::array{report});
      ADD_FAILURE() << report << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::storage);
      EXPECT_THAT(error.what(), testing::HasSubstr("report"));
    }
  }
}

TEST(Shard, RefusesTwoTensorsOfOneName) {
  const auto make = [](const char* second) {
    Shard{"rank-0", {whole_slice("model.x", at::ones({2})), whole_slice(second, at::ones({3}, at::kLong))}};
  };
  make("model.y");
  EXPECT_EQ(code_of([&] { make("model.x"); }), Errc::storage);
  EXPECT_EQ(error_of([&] { make("model.x"); }), "two tensors of a snapshot are called \"model.x\"");
}

/// A model that registers one tensor under two names.
struct Tied : torch::nn::Module {
  Tied() {
    table = register_parameter("table", at::zeros({2, 3}));
    register_parameter("head", table);
    bias = register_parameter("bias", at::zeros({2}));
  }
  at::Tensor table, bias;
};

TEST(LoadModel, TakesATensorOfTwoNamesByItsFirstName) {
  for (const bool has_both : {false, true}) {  // a converted file has both names
    MemoryStorage storage;
    Snapshot snapshot{.run = {.step = 1}};
    snapshot.tensors = {{"model.table", at::full({2, 3}, 5.0)}, {"model.bias", at::ones({2})}};
    if (has_both) snapshot.tensors.emplace("model.head", at::full({2, 3}, 5.0));
    save_snapshot(storage, snapshot);
    Tied model;
    load_model(model, storage, choose_snapshot(storage, {}));
    EXPECT_TRUE(at::equal(model.table, at::full({2, 3}, 5.0)));
    EXPECT_TRUE(at::equal(model.bias, at::ones({2})));
  }
}

class FailingDisk : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Reasons, FailingDisk, testing::Values(ENOSPC, EIO, EROFS));

TEST_P(FailingDisk, AtAnyOperationOfASaveIsAnErrorAndLosesNothing) {
  const TemporaryFolder folder;
  save_snapshot(folder.path(), snapshot_of(1));
  int operation = 1;
  for (;; ++operation) {
    const auto order = "io:errno:" + std::to_string(GetParam()) + '@' + std::to_string(operation);
    const auto status = in_child(order, [&] { save_snapshot(folder.path(), snapshot_of(2)); });
    if (exit_code(status) == 0) break;
    ASSERT_EQ(exit_code(status), static_cast<int>(Errc::storage)) << "operation " << operation;
    const auto loaded = load_snapshot(folder.path()).value();
    ASSERT_TRUE(same(loaded, snapshot_of(loaded.run.step))) << "operation " << operation;
    EXPECT_EQ(fs::exists(folder / "step-00000002"), loaded.run.step == 2)
        << "operation " << operation << ": a folder without a manifest was left behind";
    for (const auto& path : files_in(folder.path()))
      EXPECT_FALSE(path.filename().string().starts_with('.')) << path << " was left behind";
    fs::remove_all(folder / "step-00000002");
  }
  EXPECT_GT(operation, 8) << "two files are each created, written, synced and published";
  EXPECT_EQ(load_snapshot(folder.path())->run.step, 2);
}

TEST(Snapshot, AFileWhoseFsyncFailedIsGivenUp) {
  const TemporaryFolder folder;
  int failed = 0;
  for (int operation = 1; !load_snapshot(folder.path()); ++operation) {
    ::setenv("DDPXX_FAILPOINT", ("io:errno:" + std::to_string(EIO) + '@' + std::to_string(operation)).c_str(), 1);
    std::string told;
    try {
      save_snapshot(folder.path(), snapshot_of(2));
    } catch (const Error& error) {
      told = error.what();
    }
    ::unsetenv("DDPXX_FAILPOINT");
    if (told.find("cannot bring to the disk") == std::string::npos) continue;
    ++failed;
    // A second fsync would wrongly report success, so the file must not become a part of a snapshot.
    EXPECT_FALSE(load_snapshot(folder.path())) << told;
    for (const auto& path : files_in(folder.path()))
      EXPECT_FALSE(path.filename().string().starts_with('.')) << path << " was left behind";
  }
  EXPECT_EQ(failed, 2) << "expected one failure for the tensor file and one for the manifest";
}

TEST_P(FailingDisk, AtOneOperationOfALoadIsTriedAgainAndAtAllIsAnError) {
  const TemporaryFolder folder;
  save_snapshot(folder.path(), snapshot_of(1));
  save_snapshot(folder.path(), snapshot_of(2));
  const auto load = [&] {
    if (!same(load_snapshot(folder.path()).value(), snapshot_of(2))) std::_Exit(99);
  };
  const auto order = "io:errno:" + std::to_string(GetParam());
  for (int operation = 1; operation <= 6; ++operation)
    EXPECT_EQ(exit_code(in_child(order + '@' + std::to_string(operation), load)), 0) << operation;
  EXPECT_EQ(exit_code(in_child(order, load)), static_cast<int>(Errc::storage));
}

TEST(Snapshot, AFullDiskIsAnErrorAndTheOldOneStays) {
  const TemporaryFolder folder;
  save_snapshot(folder.path(), snapshot_of(1));
  const auto status = in_child("none:throw", [&] {  // the size of files is limited to 128 bytes
    const rlimit limit{.rlim_cur = 128, .rlim_max = 128};
    ::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &limit);
    save_snapshot(folder.path(), snapshot_of(2));
  });
  EXPECT_EQ(exit_code(status), static_cast<int>(Errc::storage));
  EXPECT_TRUE(same(load_snapshot(folder.path()).value(), snapshot_of(1)));
  EXPECT_THAT(files_in(folder.path()), testing::SizeIs(2)) << "an incomplete file was left behind";
}

TEST(Snapshots, KilledWhileOneIsSetAsideAreSetAsideTheNextTime) {
  for (const char* failpoint : {"snapshot.before_set_aside:kill", "file.before_write:kill", "file.after_publish:kill",
                                "folder.before_remove:kill", "folder.after_remove:kill"}) {
    const TemporaryFolder folder;
    for (const auto step : {1, 2}) save_snapshot(folder.path(), snapshot_of(step));
    fs::resize_file(tensors_of(folder / "step-00000002"), 9);
    Folder storage{folder.path()};
    const Snapshots snapshots{storage};
    const auto set_aside = [&] { snapshots.set_aside(snapshots.list().front()); };
    ASSERT_TRUE(WIFSIGNALED(in_child(failpoint, set_aside))) << failpoint;
    EXPECT_EQ(load_snapshot(storage)->run.step, 1) << failpoint;
    set_aside();
    EXPECT_FALSE(fs::exists(folder / "step-00000002" / "manifest.json")) << failpoint;
    EXPECT_TRUE(fs::exists(folder / "step-00000002" / "manifest.rejected.json")) << failpoint;
  }
}

TEST(Snapshots, SetAsideIsNoSnapshotAnyMoreAndItsStepIsFree) {
  const TemporaryFolder folder;
  Folder storage{folder.path()};
  const Snapshots snapshots{storage};
  save_snapshot(storage, snapshot_of(1));
  snapshots.set_aside(snapshots.list().front());
  EXPECT_FALSE(load_snapshot(storage));
  EXPECT_TRUE(fs::exists(folder / "step-00000001" / "manifest.rejected.json"));
  save_snapshot(storage, snapshot_of(1));
  EXPECT_TRUE(load_snapshot(storage));
}

class PlaceOfTwoRuns : public testing::Test {
 protected:
  PlaceOfTwoRuns() {
    for (const auto step : {3, 8}) fs::create_directories(folder_ / ("step-0000000" + std::to_string(step)));
    for (const auto& file : {"step-00000003/rank-0." + kMine, "step-00000003/rank-0." + kYours,
                             "step-00000008/rank-0." + kMine, std::string{"notes.txt"}})
      folder_.file(file, "x");
    for (const auto& [step, start] : {std::pair{4, kMine}, {5, kYours}, {6, kMine}}) {
      Shard shard{"rank-0." + start, {whole_slice("x", at::ones({2}))}};
      shard.write(storage_, Snapshots::folder_of(step));
      Manifest manifest;
      manifest.run.step = step;
      manifest.starts = {start};
      add_reports(manifest, std::vector{shard.report()});
      EXPECT_FALSE(snapshots_.try_commit(manifest));
    }
  }
  bool has(const std::string& file) const { return fs::exists(folder_ / file); }

  const std::string kMine = "0123456789ab", kYours = "ba9876543210";
  TemporaryFolder folder_;
  Folder storage_{folder_.path()};
  Snapshots snapshots_{storage_};
};

TEST_F(PlaceOfTwoRuns, PruneTouchesItsOwnStartsAlone) {
  snapshots_.prune({.last = 1}, {.starts = std::vector{kMine}});
  EXPECT_FALSE(has("step-00000004")) << "an older snapshot of this run must be removed";
  EXPECT_TRUE(has("step-00000005/manifest.json")) << "the snapshot of another run must stay";
  EXPECT_TRUE(has("step-00000006/manifest.json"));
  EXPECT_FALSE(has("step-00000003/rank-0." + kMine)) << "an unfinished snapshot of this run must be removed";
  EXPECT_TRUE(has("step-00000003/rank-0." + kYours)) << "another run may be writing it";
  EXPECT_TRUE(has("step-00000008/rank-0." + kMine)) << "a step after the newest snapshot may still be written";
  EXPECT_TRUE(has("notes.txt"));
}

TEST_F(PlaceOfTwoRuns, PruneOfTheWholePlaceTouchesAllSnapshotsAndNothingElse) {
  snapshots_.prune({.last = 1}, {.of_the_place = true, .starts = {}});
  for (const char* step : {"step-00000003", "step-00000004", "step-00000005"}) EXPECT_FALSE(has(step)) << step;
  EXPECT_TRUE(has("step-00000006/manifest.json"));
  EXPECT_TRUE(has("notes.txt"));
}

TEST(Snapshots, AreNotPublishedWhereAFileCannotBeSeenOrATensorIsNotComplete) {
  const TemporaryFolder folder;
  Folder storage{folder.path()}, elsewhere{folder / "elsewhere"};
  Shard shard{"rank-1", {whole_slice("x", at::ones({2}))}};
  shard.write(elsewhere, Snapshots::folder_of(1));
  Manifest manifest;
  manifest.run.step = 1;
  add_reports(manifest, std::vector{shard.report()});
  try {
    Snapshots{storage}.try_commit(manifest);
    FAIL() << "a snapshot was published although one of its files is missing";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("all ranks must share one save_dir, and nothing may remove its files "
                                                 "while a run saves there"));
  }
  manifest.tensors.at("x").parts.clear();
  EXPECT_THROW(Snapshots{storage}.try_commit(manifest), Error);
}

TEST(Snapshots, WithoutTheirDateAndTheOrderOfParametersAreRead) {
  const TemporaryFolder folder;
  save_snapshot(folder.path(), snapshot_of(1));
  const auto path = folder / "step-00000001" / "manifest.json";
  auto text = read_file(path, Errc::storage);
  for (const std::string key : {"\"written_at\"", "\"parameters\""}) {
    const auto begin = text.find(key);
    ASSERT_NE(begin, std::string::npos);
    text.erase(begin - 1, text.find(',', begin) - begin + 1);
  }
  text.resize(text.rfind(",\"crc32c\""));
  text += ",\"crc32c\":\"" + sums_text({crc32c(bytes_of(text))}) + "\"}\n";
  std::ofstream{path} << text;
  EXPECT_TRUE(same(load_snapshot(folder.path()).value(), snapshot_of(1)));
}

TEST(Snapshots, CountTheAttemptsToLoadThemUntilTheyAreForgottenOrSetAside) {
  const TemporaryFolder folder;
  Folder storage{folder.path()};
  const Snapshots snapshots{storage};
  save_snapshot(storage, snapshot_of(1));
  const auto stored = [&] { return snapshots.list().front(); };
  EXPECT_EQ(snapshots.attempts(stored()), 0);
  snapshots.write_attempts(stored(), 3);
  EXPECT_EQ(snapshots.attempts(stored()), 3);
  EXPECT_TRUE(same(load_snapshot(storage).value(), snapshot_of(1)))
      << "reading alone must ignore the number of attempts";
  snapshots.clear_attempts(stored());
  snapshots.clear_attempts(stored());
  EXPECT_EQ(snapshots.attempts(stored()), 0);
  for (const char* text : {"", "rubbish", "-7\n"}) {
    folder.file("step-00000001/attempts", text);
    EXPECT_EQ(snapshots.attempts(stored()), 0) << text;
  }
  snapshots.write_attempts(stored(), 2);
  snapshots.set_aside(stored());
  save_snapshot(storage, snapshot_of(1));
  EXPECT_EQ(snapshots.attempts(stored()), 0) << "a new snapshot of the step must start without attempts";
}

TEST(Snapshots, OfAnotherVersionAreNeitherDamagedNorTouched) {
  const TemporaryFolder folder;
  save_snapshot(folder.path(), snapshot_of(1));
  auto text = read_file(folder / "step-00000001" / "manifest.json", Errc::storage);
  text.replace(text.find("ddpxx snapshot 1"), 16, "ddpxx snapshot 2");
  text.resize(text.rfind(",\"crc32c\""));
  text += ",\"crc32c\":\"" + sums_text({crc32c(bytes_of(text))}) + "\"}\n";
  std::ofstream{folder / "step-00000001" / "manifest.json"} << text;
  try {
    load_snapshot(folder.path());
    FAIL() << "a snapshot with an unknown format was read";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("was written by another version of ddpxx"));
  }
}

TEST(Folder, IsClaimedByOneAtATimeAndFreeWhenItsHolderIsKilled) {
  const TemporaryFolder folder;
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  const pid_t holder = ::fork();
  if (holder == 0) {
    Folder storage{folder.path()};
    storage.claim("the first run on " + host_name());
    folder.file(".rank-0.17-0.tmp", "half of it");
    if (::write(ready[1], "x", 1) == 1) ::pause();
    std::_Exit(0);
  }
  char answer = 0;
  ASSERT_EQ(::read(ready[0], &answer, 1), 1);
  Folder storage{folder.path()};
  try {
    storage.claim("the second run");
    FAIL() << "two processes have claimed the folder";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::storage);
    EXPECT_THAT(error.what(), testing::HasSubstr("is in use by the first run"));
  }
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
  EXPECT_TRUE(storage.claim("the second run"));
  EXPECT_FALSE(fs::exists(folder / ".rank-0.17-0.tmp")) << "the first holder's temporary file was not removed";
}

TEST(Folder, ListsFilesWithThePrefixAndRemovesEmptyFolders) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "lost+found");
  fs::create_directories(folder / "step-1" / "deep");
  folder.file("step-1/deep/a", "xx");
  folder.file("other", "x");
  Folder storage{folder / ""};
  EXPECT_EQ(storage.list("step-"), (std::vector<StoredObject>{{"step-1/deep/a", 2}}));
  EXPECT_EQ(storage.list("step-1/deep/a"), (std::vector<StoredObject>{{"step-1/deep/a", 2}}));
  storage.remove("step-1/deep/a");
  EXPECT_FALSE(fs::exists(folder / "step-1")) << "empty folders must be removed";
  storage.remove("other");
  EXPECT_TRUE(fs::exists(folder.path())) << "the storage's own folder must never be removed";
  EXPECT_THROW(storage.read_text("../outside", 10), Error);
}

}  // namespace
}  // namespace ddpxx::snapshot_test
