#include <ddpxx/parallel/ddp.hpp>

struct Silent {
  struct Config {};
  Silent(const Config&, ddpxx::Group&) {}
};

template class ddpxx::DDPWith<Silent>;
