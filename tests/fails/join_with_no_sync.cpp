#include <ddpxx/parallel/hooks/no_hook.hpp>
#include <ddpxx/parallel/join.hpp>

template class ddpxx::Join<ddpxx::NoSync>;
