// torch_instances.hpp — classes of LibTorch with virtual functions, which clang would otherwise instantiate again in
// each file that uses a precompiled header: a second for each file. `clang++ -ftime-trace` names what the compilation
// of an empty file instantiates. Without a line of this list everything compiles, but more slowly.
#pragma once

#include <torch/csrc/jit/ir/ir.h>
#include <torch/nn/modules/linear.h>

template class c10::EnumerationType<c10::TypeKind::LayoutType>;
template class c10::EnumerationType<c10::TypeKind::MemoryFormatType>;
template class c10::EnumerationType<c10::TypeKind::ScalarTypeType>;
template class c10::SingleElementType<c10::TypeKind::AwaitType, c10::AwaitType>;
template class c10::SingleElementType<c10::TypeKind::FutureType, c10::FutureType>;
template class c10::SingleElementType<c10::TypeKind::ListType, c10::ListType>;
template class c10::SingleElementType<c10::TypeKind::RRefType, c10::RRefType>;
template class torch::jit::ScalarAttributeValue<c10::complex<double>, torch::jit::AttributeKind::c>;
template class torch::jit::ScalarAttributeValue<double, torch::jit::AttributeKind::f>;
template class torch::jit::ScalarAttributeValue<long, torch::jit::AttributeKind::i>;
template class torch::jit::ScalarAttributeValue<std::string, torch::jit::AttributeKind::s>;
template class torch::jit::VectorAttributeValue<at::Tensor, torch::jit::AttributeKind::ts>;
template class torch::jit::VectorAttributeValue<c10::TypePtr, torch::jit::AttributeKind::tys>;
template class torch::jit::VectorAttributeValue<c10::complex<double>, torch::jit::AttributeKind::cs>;
template class torch::jit::VectorAttributeValue<double, torch::jit::AttributeKind::fs>;
template class torch::jit::VectorAttributeValue<long, torch::jit::AttributeKind::is>;
template class torch::jit::VectorAttributeValue<std::string, torch::jit::AttributeKind::ss>;
template class torch::nn::Cloneable<torch::nn::BilinearImpl>;
template class torch::nn::Cloneable<torch::nn::LinearImpl>;
template class torch::nn::Cloneable<torch::nn::UnflattenImpl>;
