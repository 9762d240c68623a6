// instances.hpp — templates that clang would otherwise instantiate again in each file that uses the precompiled header,
// which takes three seconds for each file; see cmake/torch_instances.hpp.
#pragma once

#include <string>

#include <torch/torch.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ddpxx/ddpxx.hpp>

#include "../cmake/torch_instances.hpp"

// What most tests instantiate.
template void ddpxx::check_trainer_config(const ddpxx::TrainerConfig<>&);
template void ddpxx::check_trainer_config(const ddpxx::TrainerConfig<ddpxx::SGD, ddpxx::Float32, ddpxx::SingleDevice>&);
template std::string testing::PrintToString(const nlohmann::json&);

// The other classes of LibTorch with virtual functions that torch/torch.h brings.
template class c10d::CppCommHookInterface<c10::intrusive_ptr<c10d::ProcessGroup>>;
template class torch::data::datasets::Dataset<torch::data::datasets::MNIST>;
template class torch::data::datasets::Dataset<torch::data::datasets::TensorDataset, torch::data::TensorExample>;
template class torch::nn::Cloneable<torch::nn::AdaptiveLogSoftmaxWithLossImpl>;
template class torch::nn::Cloneable<torch::nn::Conv1dImpl>;
template class torch::nn::Cloneable<torch::nn::Conv2dImpl>;
template class torch::nn::Cloneable<torch::nn::Conv3dImpl>;
template class torch::nn::Cloneable<torch::nn::ConvTranspose1dImpl>;
template class torch::nn::Cloneable<torch::nn::ConvTranspose2dImpl>;
template class torch::nn::Cloneable<torch::nn::ConvTranspose3dImpl>;
template class torch::nn::Cloneable<torch::nn::CrossMapLRN2dImpl>;
template class torch::nn::Cloneable<torch::nn::EmbeddingBagImpl>;
template class torch::nn::Cloneable<torch::nn::EmbeddingImpl>;
template class torch::nn::Cloneable<torch::nn::FoldImpl>;
template class torch::nn::Cloneable<torch::nn::FractionalMaxPool2dImpl>;
template class torch::nn::Cloneable<torch::nn::FractionalMaxPool3dImpl>;
template class torch::nn::Cloneable<torch::nn::GRUCellImpl>;
template class torch::nn::Cloneable<torch::nn::GRUImpl>;
template class torch::nn::Cloneable<torch::nn::GroupNormImpl>;
template class torch::nn::Cloneable<torch::nn::LSTMCellImpl>;
template class torch::nn::Cloneable<torch::nn::LSTMImpl>;
template class torch::nn::Cloneable<torch::nn::LayerNormImpl>;
template class torch::nn::Cloneable<torch::nn::LocalResponseNormImpl>;
template class torch::nn::Cloneable<torch::nn::LogSoftmaxImpl>;
template class torch::nn::Cloneable<torch::nn::ModuleDictImpl>;
template class torch::nn::Cloneable<torch::nn::MultiheadAttentionImpl>;
template class torch::nn::Cloneable<torch::nn::ParameterDictImpl>;
template class torch::nn::Cloneable<torch::nn::RNNCellImpl>;
template class torch::nn::Cloneable<torch::nn::RNNImpl>;
template class torch::nn::Cloneable<torch::nn::SequentialImpl>;
template class torch::nn::Cloneable<torch::nn::SoftmaxImpl>;
template class torch::nn::Cloneable<torch::nn::SoftminImpl>;
template class torch::nn::Cloneable<torch::nn::ThresholdImpl>;
template class torch::nn::Cloneable<torch::nn::TransformerDecoderImpl>;
template class torch::nn::Cloneable<torch::nn::TransformerDecoderLayerImpl>;
template class torch::nn::Cloneable<torch::nn::TransformerEncoderImpl>;
template class torch::nn::Cloneable<torch::nn::TransformerEncoderLayerImpl>;
template class torch::nn::Cloneable<torch::nn::UnfoldImpl>;
template class torch::nn::ConvNdImpl<1, torch::nn::Conv1dImpl>;
template class torch::nn::ConvNdImpl<1, torch::nn::ConvTranspose1dImpl>;
template class torch::nn::ConvNdImpl<2, torch::nn::Conv2dImpl>;
template class torch::nn::ConvNdImpl<2, torch::nn::ConvTranspose2dImpl>;
template class torch::nn::ConvNdImpl<3, torch::nn::Conv3dImpl>;
template class torch::nn::ConvNdImpl<3, torch::nn::ConvTranspose3dImpl>;
template class torch::nn::ConvTransposeNdImpl<1, torch::nn::ConvTranspose1dImpl>;
template class torch::nn::ConvTransposeNdImpl<2, torch::nn::ConvTranspose2dImpl>;
template class torch::nn::ConvTransposeNdImpl<3, torch::nn::ConvTranspose3dImpl>;
template class torch::optim::OptimizerCloneableOptions<torch::optim::AdagradOptions>;
template class torch::optim::OptimizerCloneableOptions<torch::optim::AdamOptions>;
template class torch::optim::OptimizerCloneableOptions<torch::optim::AdamWOptions>;
template class torch::optim::OptimizerCloneableOptions<torch::optim::LBFGSOptions>;
template class torch::optim::OptimizerCloneableOptions<torch::optim::RMSpropOptions>;
template class torch::optim::OptimizerCloneableOptions<torch::optim::SGDOptions>;
template class torch::optim::OptimizerCloneableParamState<torch::optim::AdagradParamState>;
template class torch::optim::OptimizerCloneableParamState<torch::optim::AdamParamState>;
template class torch::optim::OptimizerCloneableParamState<torch::optim::AdamWParamState>;
template class torch::optim::OptimizerCloneableParamState<torch::optim::LBFGSParamState>;
template class torch::optim::OptimizerCloneableParamState<torch::optim::RMSpropParamState>;
template class torch::optim::OptimizerCloneableParamState<torch::optim::SGDParamState>;
