// ddpxx/comm/hosts_backend.hpp — the collectives of ranks on several hosts: through memory within a host, over Gloo
// between hosts.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <ddpxx/comm/collective_queue.hpp>
#include <ddpxx/comm/gloo_disconnect.hpp>
#include <ddpxx/comm/rank_order_reduce.hpp>
#include <ddpxx/comm/reduce.hpp>
#include <ddpxx/comm/shared_collectives.hpp>
#include <ddpxx/comm/shared_memory_backend.hpp>
#include <ddpxx/comm/shared_rounds.hpp>
#include <ddpxx/comm/shared_tensors.hpp>

namespace ddpxx::detail {

inline constexpr const char* kHostsName = "shm+gloo";

/// Carries collectives of H hosts with L ranks each, where rank h L + l has local rank l on host h. The ranks of a host
/// share memory. The ranks with local rank l of all hosts are connected over Gloo, and each sends only its own part of
/// the bytes of its host: an all-reduce of n bytes is a reduce-scatter within each host, L all-reduces of n / L bytes
/// between the hosts, and an all-gather within each host. All-to-all, send, recv, and reductions of boolean values
/// go over Gloo between all ranks. Other calls of c10d are not supported.
///
/// The time limit of the backend is that of each part of a collective, within the host or between hosts. A time limit
/// of a wait is that of the whole collective.
/// Errors  as SharedMemoryBackend and Gloo. A rank that gets an error gives up, and the other ranks of its host notice it.
class HostsBackend final : public c10d::Backend {
 public:
  using WorkRef = c10::intrusive_ptr<c10d::Work>;
  using BackendRef = c10::intrusive_ptr<c10d::Backend>;

  /// `host` are the collectives of the ranks of this host; `across` connects this rank with those of its local rank on
  /// the other hosts, in the order of the hosts; `all` connects all ranks.
  HostsBackend(int rank, int size, std::shared_ptr<CollectiveQueue> host, BackendRef across, BackendRef all)
      : c10d::Backend{rank, size}, host_{std::move(host)}, across_{.backend = std::move(across)}, all_{std::move(all)} {
    across_.hosts = across_.backend->getSize();
    across_.ranks_of_host = size / across_.hosts;
    across_.local_rank = rank % across_.ranks_of_host;
  }
  ~HostsBackend() override { host_->end("this rank has abandoned the group"); }

  const std::string getBackendName() const override { return kHostsName; }
  void setTimeout(std::chrono::milliseconds timeout) override {
    host_->set_timeout(timeout);
    across_.backend->setTimeout(timeout);
    all_->setTimeout(timeout);
  }
  void abort() override {
    host_->end("this rank has abandoned the group");
    disconnect_gloo(*across_.backend);
    disconnect_gloo(*all_);
  }
  void shutdown() override {
    host_->end("this rank has left the group");
    across_.backend->shutdown();
    all_->shutdown();
  }

  WorkRef allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    const auto tensor = only_tensor(tensors);
    check_on_cpu(tensor);
    check_dense(tensor);
    const auto reduce = reduce_of(options.reduceOp);
    check_type_of_gloo(tensor.scalar_type());
    if (tensor.scalar_type() == at::kBool)
      return over_all([&](c10d::Backend& all) { return all.allreduce(tensors, options); });
    return start([across = across_, all = elements_of(tensor), reduce, options](SharedCollectives& shared) {
      const auto type = all.scalar_type();
      const auto all_reduce_across = [&](const at::Tensor& part) {
        std::vector<at::Tensor> parts{part};
        across.run(shared, [&](c10d::Backend& backend) { return backend.allreduce(parts, options); });
      };
      const auto all_reduce_small = [&](const at::Tensor& part) {
        shared.all_reduce(memory_of(part), part.numel(), type, reduce);
        if (part.numel() > 0) all_reduce_across(part);
      };
      if (memory_size(all) <= SharedCollectives::kMaxFlatBytes) return all_reduce_small(all);
      const auto count = all.numel() / across.ranks_of_host, even = count * across.ranks_of_host;
      const auto own = all.narrow(0, across.local_rank * count, count);
      if (reduce == Reduce::sum)
        shared.reduce_scatter(memory_of(own), memory_of(all), count, {type, type});
      else
        shared.all_reduce(memory_of(all), even, type, reduce);
      all_reduce_across(own);
      shared.all_gather(memory_of(all), memory_of(own), memory_size(own));
      if (even < all.numel()) all_reduce_small(all.narrow(0, even, all.numel() - even));
    });
  }
  WorkRef _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    check_reduce_scatter(output, input, options.reduceOp, getSize());
    const ReduceTypes types{input.scalar_type(), output.scalar_type()};
    return start([across = across_, output, input, types](SharedCollectives& shared) {
      if (output.numel() == 0) return shared.reduce_scatter(memory_of(output), memory_of(input), 0, types);
      // A rank adds up what the ranks with its local rank get from its host. These ranks then exchange such sums.
      const auto by_local_rank =
          input.view({across.hosts, across.ranks_of_host, output.numel()}).transpose(0, 1).contiguous();
      auto sums = at::empty({across.hosts, output.numel()}, output.options()), received = at::empty_like(sums);
      shared.reduce_scatter(memory_of(sums), memory_of(by_local_rank), sums.numel(), types);
      auto received_bytes = byte_view(received), sent_bytes = byte_view(sums);
      std::vector<std::int64_t> even;
      across.run(shared, [&](c10d::Backend& backend) {
        return backend.alltoall_base(received_bytes, sent_bytes, even, even, c10d::AllToAllOptions{});
      });
      sum_rows(output, received);
    });
  }
  WorkRef _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions&) override {
    check_on_cpu(output);
    check_on_cpu(input);
    check_all_gather(output, input, getSize());
    return start([across = across_, output, input](SharedCollectives& shared) {
      if (input.numel() == 0) return shared.all_gather(memory_of(output), memory_of(input), 0);
      const auto of_hosts = at::empty({across.hosts * input.numel()}, input.options());
      auto own_bytes = byte_view(input), bytes_of_hosts = byte_view(of_hosts);
      across.run(shared, [&](c10d::Backend& backend) {
        return backend._allgather_base(bytes_of_hosts, own_bytes, c10d::AllgatherOptions{});
      });
      const auto by_local_rank = at::empty({across.ranks_of_host, across.hosts, input.numel()}, input.options());
      shared.all_gather(memory_of(by_local_rank), memory_of(of_hosts), memory_size(of_hosts));
      output.view({across.hosts, across.ranks_of_host, input.numel()}).copy_(by_local_rank.transpose(0, 1));
    });
  }
  WorkRef broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    const auto tensor = only_tensor(tensors);
    check_on_cpu(tensor);
    check_dense(tensor);
    const auto root = static_cast<int>(options.rootRank);
    TORCH_CHECK_VALUE(root >= 0 && root < getSize(), "broadcast: there is no rank ", root);
    return start([across = across_, all = byte_view(tensor), root](SharedCollectives& shared) {
      const auto host = root / across.ranks_of_host, local_rank = root % across.ranks_of_host;
      if (local_rank == across.local_rank && all.numel() > 0) {
        std::vector<at::Tensor> sent{all};
        c10d::BroadcastOptions between_hosts;
        between_hosts.rootRank = host;
        across.run(shared, [&](c10d::Backend& backend) { return backend.broadcast(sent, between_hosts); });
      }
      shared.broadcast(memory_of(all), memory_size(all), local_rank);
    });
  }

  WorkRef alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_sizes,
                        std::vector<std::int64_t>& input_sizes, const c10d::AllToAllOptions& options) override {
    check_all_to_all(output, input, output_sizes, input_sizes, getSize());
    check_type_of_gloo(input.scalar_type());
    return over_all(
        [&](c10d::Backend& all) { return all.alltoall_base(output, input, output_sizes, input_sizes, options); });
  }
  WorkRef send(std::vector<at::Tensor>& tensors, int to, int tag) override {
    return over_all([&](c10d::Backend& all) { return all.send(tensors, to, tag); });
  }
  WorkRef recv(std::vector<at::Tensor>& tensors, int from, int tag) override {
    return over_all([&](c10d::Backend& all) { return all.recv(tensors, from, tag); });
  }
  WorkRef barrier(const c10d::BarrierOptions& options) override {
    return start([across = across_, options](SharedCollectives& shared) {
      shared.barrier();
      across.run(shared, [&](c10d::Backend& backend) { return backend.barrier(options); });
      shared.barrier();
    });
  }

 private:
  /// The ranks with this rank's local rank on all hosts.
  struct Across {
    BackendRef backend;
    int hosts = 1, ranks_of_host = 1, local_rank = 0;
    /// One call of Gloo is started at a time: c10d's flight recorder, which notes each start, is one for the process.
    std::shared_ptr<std::mutex> one_start = std::make_shared<std::mutex>();

    template <class Call>
    WorkRef start(const Call& call, c10d::Backend& on) const {
      const std::lock_guard lock{*one_start};
      return call(on);
    }
    /// Does one call of the collective that `shared` carries out, from the start of the call to its end. The ranks of
    /// this host then have the whole time limit again: none of them was late while others exchanged with other hosts.
    template <class Call>
    void run(SharedCollectives& shared, const Call& call) const {
      const auto end = shared.rounds().patience().end;
      const auto work = start(call, *backend);
      if (end == RoundPatience::Time::max())
        work->wait();
      else
        work->wait(std::max(std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()),
                            std::chrono::milliseconds{1}));
      shared.rounds().begin_limit();
    }
  };

  template <class Call>
  WorkRef over_all(const Call& call) const {
    return across_.start(call, *all_);
  }
  WorkRef start(CollectiveQueue::Body body) {
    auto without_autograd = [body = std::move(body)](SharedCollectives& shared) {
      // The thread that carries this out may be the queue's, where gradients are on.
      const at::AutoDispatchBelowADInplaceOrView no_graph;
      body(shared);
    };
    return c10::make_intrusive<SharedMemoryWork>(host_, host_->start(std::move(without_autograd)));
  }

  std::shared_ptr<CollectiveQueue> host_;
  Across across_;
  BackendRef all_;
};

}  // namespace ddpxx::detail
