// src/storage.cpp — the part of ddpxx::core that comes from the room storage/: see ddpxx/core/inline.hpp.
#include <ddpxx/storage/folder_inl.hpp>
#include <ddpxx/storage/folder_lock_inl.hpp>
