// ddpxx/layers/tensors_in.hpp — visits the tensors in the arguments and results of a layer.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Scalar.h>

namespace ddpxx {

namespace detail {
template <class T>
inline constexpr bool is_tuple = false;
template <class... T>
inline constexpr bool is_tuple<std::tuple<T...>> = true;
template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;
template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <class T>
inline constexpr bool holds_by_apply = is_tuple<T>;
template <class A, class B>
inline constexpr bool holds_by_apply<std::pair<A, B>> = true;
template <class T, std::size_t N>
inline constexpr bool holds_by_apply<std::array<T, N>> = true;
}  // namespace detail

/// True if each_tensor visits all tensors that a value of this type can hold. A program may specialise it to true for a
/// type of its own, or for a pointer to one, that holds no tensor that needs a gradient.
template <class T>
inline constexpr bool shows_its_tensors = !std::is_class_v<T> || std::is_same_v<T, at::Tensor> || std::is_empty_v<T>;
/// What a pointer leads to is not visited.
template <class T>
inline constexpr bool shows_its_tensors<T*> = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_function_v<T> ||
                                              std::is_same_v<std::remove_cv_t<T>, std::string>;
/// In a tuple of references the tensors belong to the caller, and may be gone when the layer runs again.
template <class T>
inline constexpr bool shows_its_tensors<T&> = false;
template <>
inline constexpr bool shows_its_tensors<std::string> = true;
template <>
inline constexpr bool shows_its_tensors<at::Scalar> = true;
template <>
inline constexpr bool shows_its_tensors<at::Device> = true;
template <class... T>
inline constexpr bool shows_its_tensors<std::tuple<T...>> = (shows_its_tensors<T> && ...);
template <class A, class B>
inline constexpr bool shows_its_tensors<std::pair<A, B>> = shows_its_tensors<A> && shows_its_tensors<B>;
template <class T, std::size_t N>
inline constexpr bool shows_its_tensors<std::array<T, N>> = shows_its_tensors<T>;
template <class T>
inline constexpr bool shows_its_tensors<std::vector<T>> = shows_its_tensors<T>;
template <class T>
inline constexpr bool shows_its_tensors<std::optional<T>> = shows_its_tensors<T>;

/// Calls `visit` with each defined tensor in `value`: a tensor, or tuples, pairs, arrays, vectors and optionals of
/// them. Values of other types are taken to hold no tensor. `visit` may replace the tensor.
template <class T, class Visit>
void each_tensor(T& value, Visit&& visit) {
  using Plain = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Plain, at::Tensor>) {
    if (value.defined()) visit(value);
  } else if constexpr (detail::holds_by_apply<Plain>) {
    std::apply([&](auto&... item) { (each_tensor(item, visit), ...); }, value);
  } else if constexpr (detail::is_vector<Plain>) {
    if constexpr (!std::is_arithmetic_v<typename Plain::value_type>)
      for (auto& item : value) each_tensor(item, visit);
  } else if constexpr (detail::is_optional<Plain>) {
    if (value) each_tensor(*value, visit);
  }
}

}  // namespace ddpxx
