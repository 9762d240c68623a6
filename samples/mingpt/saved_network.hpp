// saved_network.hpp — compares the network of a run with the one whose weights it begins with. Weights do not show the
// number of heads or the form of GELU.
#pragma once

#include <string>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/interop/state_dicts.hpp>
#include <ddpxx/nn/gpt_config.hpp>

/// The network of nanoGPT, whose GELU is exact. `tied_head` is that of the run: the head of nanoGPT is tied, and a
/// model that trains its own begins with a copy.
inline ddpxx::GPTConfig network_of(const ddpxx::NanoGPTArguments& arguments, bool tied_head) {
  return {.n_layer = arguments.n_layer,
          .n_head = arguments.n_head,
          .n_embd = arguments.n_embd,
          .bias = arguments.bias,
          .gelu = ddpxx::GELUForm::exact,
          .tied_head = tied_head};
}

/// Compares the network of a run with the one of its weights, which are in `source`, such as "the file". Warns of
/// another form of GELU, unless the run sets one. A GPT of another layout has other names of tensors, which the error
/// of loading lists.
/// Errors  `storage` for another number of layers or heads, another width, and biases or a tied head in only one of
///         them.
inline void check_network(const ddpxx::GPTConfig& saved, const ddpxx::GPTConfig& model, const std::string& source,
                          const ddpxx::Group& group) {
  if (saved.layout != model.layout) return;
  std::string differences, settings;
  const auto compare = [&](const std::string& name, const std::string& in_source, const std::string& here) {
    if (in_source == here) return;
    differences += "\n  " + name + ": " + in_source + " in " + source + ", " + here + " in this run";
    settings += " model." + name + '=' + in_source;
  };
  const auto theirs = saved.sizes(), ours = model.sizes();
  const auto truth = [](bool value) { return std::string{value ? "true" : "false"}; };
  compare("n_layer", std::to_string(theirs.n_layer), std::to_string(ours.n_layer));
  compare("n_head", std::to_string(theirs.n_head), std::to_string(ours.n_head));
  compare("n_embd", std::to_string(theirs.n_embd), std::to_string(ours.n_embd));
  compare("bias", truth(saved.bias), truth(model.bias));
  compare("tied_head", truth(saved.tied_head), truth(model.tied_head));
  if (!differences.empty())
    throw ddpxx::Error{ddpxx::Errc::storage,
                       "these are the weights of another network:" + differences + "\nset" + settings};
  if (model.gelu || saved.gelu_form() == model.gelu_form()) return;
  const auto name = [](ddpxx::GELUForm form) { return std::string{form == ddpxx::GELUForm::exact ? "exact" : "tanh"}; };
  const auto form = name(saved.gelu_form()), own = name(model.gelu_form());
  ddpxx::Log{group.rank()}.info("warning: the weights in " + source + " were trained with GELU in its form " + form +
                                ", and this run computes the form " + own + ": set model.gelu=" + form +
                                ", or model.gelu=" + own + " if that is intended");
}
