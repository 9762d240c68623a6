// src/data.cpp — the part of ddpxx::core that comes from the room data/: see ddpxx/core/inline.hpp.
#include <ddpxx/data/alphabet_inl.hpp>
#include <ddpxx/data/char_ids_inl.hpp>
#include <ddpxx/data/dataset_text_inl.hpp>
#include <ddpxx/data/loader_inl.hpp>
#include <ddpxx/data/random_split_inl.hpp>
#include <ddpxx/data/worker_threads_inl.hpp>

template std::future<ddpxx::Batch> ddpxx::detail::started(WorkerThreads& workers, std::function<Batch()> make);
