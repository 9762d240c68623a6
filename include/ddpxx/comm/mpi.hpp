// ddpxx/comm/mpi.hpp — makes a group of the processes of an MPI program. It needs mpi.h and an MPI library, and is not
// part of ddpxx/ddpxx.hpp.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <mpi.h>
#include <string>
#include <utility>

#include <ddpxx/comm/connect.hpp>
#include <ddpxx/comm/connect_options.hpp>
#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/listen.hpp>
#include <ddpxx/comm/rank_info.hpp>
#include <ddpxx/comm/secret.hpp>
#include <ddpxx/comm/socket_address.hpp>
#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/host_name.hpp>

namespace ddpxx {

/// The numbers of this process among those of `comm`; processes that share memory are on one machine.
/// Ranks   Collective.
inline RankInfo mpi_rank_info(MPI_Comm comm) {
  int rank = 0, size = 1, local_rank = 0, local_size = 1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  MPI_Comm machine = MPI_COMM_NULL;
  MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &machine);
  MPI_Comm_rank(machine, &local_rank);
  MPI_Comm_size(machine, &local_size);
  MPI_Comm_free(&machine);
  return {.rank = Rank{rank},
          .world_size = WorldSize{size},
          .local_rank = LocalRank{local_rank},
          .local_world_size = LocalWorldSize{local_size}};
}

namespace detail {

/// The address where rank 0 serves the store, and the secret by which it recognizes the ranks; or the reason why it
/// cannot serve.
struct MPIMeetingPlace {
  std::string address;
  std::string token;
  std::string error;
  int listener = -1;  ///< On rank 0, a socket that already listens there, or -1.
};

/// Called by rank 0.
inline MPIMeetingPlace choose_meeting_place(bool one_machine) {
  try {
    if (one_machine) {
      const auto listener = ddpxx::listen_on_loopback();
      return {.address = "tcp://127.0.0.1:" + std::to_string(SocketAddress::of_socket(listener.get()).port()),
              .token = make_secret(),
              .error = {},
              .listener = ::fcntl(listener.get(), F_DUPFD_CLOEXEC, 0)};
    }
    const auto any = listen_at(*SocketAddress::parse("0.0.0.0"));  // lets the system choose a free port
    if (!any) throw Error{Errc::peer, std::string{"no free port: "} + std::strerror(errno)};
    return {.address = store_url(host_name(), SocketAddress::of_socket(any.get()).port()),
            .token = make_secret(),
            .error = {}};
  } catch (const std::exception& error) {
    return {.address = {}, .token = {}, .error = error.what()};
  }
}

/// Rank 0's text on all ranks.
inline std::string broadcast_by_mpi(std::string text, MPI_Comm comm) {
  auto size = static_cast<std::int64_t>(text.size());
  MPI_Bcast(&size, 1, MPI_INT64_T, 0, comm);
  text.resize(static_cast<std::size_t>(size));
  MPI_Bcast(text.data(), static_cast<int>(size), MPI_CHAR, 0, comm);
  return text;
}

}  // namespace detail

/// Connects the processes of `comm` as a group, as `connect` does, but without an address: rank 0 chooses one and sends
/// it by MPI_Bcast, with a secret that admits only these processes. The group does not use MPI afterwards. On several
/// machines the ranks meet at rank 0's host name.
///
///     MPI_Init(&argc, &argv);
///     Group group = connect_mpi(MPI_COMM_WORLD);
///
/// Ranks   Collective. Call MPI_Init before. If the ranks use GPUs, each sets its own in `options.device`.
/// Errors  those of `connect`; errors of MPI itself are handled as `comm` says, which by default ends the program.
inline Group connect_mpi(MPI_Comm comm, ConnectOptions options = {}) {
  const auto rank_info = mpi_rank_info(comm);
  if (rank_info.world_size.value == 1) return connect("", rank_info, options);  // opens no port
  detail::MPIMeetingPlace meeting;
  if (rank_info.rank.value == 0)
    meeting = detail::choose_meeting_place(rank_info.local_world_size.value == rank_info.world_size.value);
  meeting.error = detail::broadcast_by_mpi(std::move(meeting.error), comm);
  meeting.address = detail::broadcast_by_mpi(std::move(meeting.address), comm);
  meeting.token = detail::broadcast_by_mpi(std::move(meeting.token), comm);
  if (!meeting.error.empty()) {
    Error error{Errc::peer, "rank 0 cannot open a meeting place for the ranks: " + meeting.error};
    if (rank_info.rank.value != 0) error.copied_from(0);
    throw error;
  }
  options.store_host = StoreHost::rank_zero;
  options.local_world_known = true;
  options.credentials.token = meeting.token;
  options.listening_socket = meeting.listener;
  return connect(meeting.address, rank_info, options);
}

}  // namespace ddpxx
