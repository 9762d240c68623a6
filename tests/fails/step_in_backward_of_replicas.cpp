#include <ddpxx/parallel/data_parallel.hpp>
#include <ddpxx/parallel/step_in_backward.hpp>

template class ddpxx::StepInBackward<ddpxx::DataParallel>;
