// ddpxx/parallel/same_model_inl.hpp — the definition of same_model.hpp.
#pragma once

#include <cstddef>
#include <sstream>
#include <string>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/flat/flat_model.hpp>
#include <ddpxx/parallel/same_model.hpp>

namespace ddpxx {

DDPXX_INLINE void check_same_model(const FlatModel& model, const Group& group) {
  std::ostringstream mine;
  for (const auto* list : {&model.trainable(), &model.frozen()})
    for (const auto& parameter : *list)
      mine << parameter.name << ' ' << parameter.tensor.sizes() << ' ' << c10::toString(parameter.tensor.scalar_type())
           << (parameter.tensor.requires_grad() ? "" : " frozen") << '\n';
  for (const auto& buffer : model.module().named_buffers())
    mine << buffer.key() << ' ' << buffer.value().sizes() << ' ' << c10::toString(buffer.value().scalar_type()) << '\n';

  const auto all = all_gather_text(mine.str(), group);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    std::istringstream first{all[0]}, other{all[rank]};
    std::string here, there;
    do {
      if (!std::getline(first, here)) here = "nothing more";
      if (!std::getline(other, there)) there = "nothing more";
    } while (here == there);
    throw Error{Errc::peer, "the ranks hold different models: rank 0 has \"" + here + "\" where rank " +
                                std::to_string(rank) + " has \"" + there +
                                "\"; start all ranks with one configuration"};
  }
}

}  // namespace ddpxx
