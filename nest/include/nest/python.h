// Reads nests from Python structures.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>
#include <type_traits>
#include <utility>

#include "nest/nest.h"

namespace nest {

// Deep enough for any real structure, and less than what protobuf parses (48). A self-referential
// list ends here instead of overflowing the stack.
constexpr int kMaxDepth = 40;

// Reads tuples, lists and dicts with keys that are str; what is none of them is a leaf, which
// `read_leaf(handle)` makes. A tag of nanobind::object is the Python container. Throws NestError
// beyond kMaxDepth, nanobind::type_error for another key.
template <typename Nest, typename ReadLeaf>
Nest ReadNest(nanobind::handle source, const ReadLeaf& read_leaf, int depth = 0) {
  namespace nb = nanobind;
  using Tag = std::decay_t<decltype(std::declval<const Nest&>().tag())>;
  if (depth > kMaxDepth) {
    throw NestError("Structure is nested deeper than " + std::to_string(kMaxDepth) + " levels");
  }
  Tag tag{};
  if constexpr (std::is_same_v<Tag, nb::object>) tag = nb::borrow(source);
  if (nb::isinstance<nb::tuple>(source) || nb::isinstance<nb::list>(source)) {
    typename Nest::Sequence items;
    for (nb::handle item : source) items.push_back(ReadNest<Nest>(item, read_leaf, depth + 1));
    return Nest(std::move(items), std::move(tag));
  }
  if (nb::isinstance<nb::dict>(source)) {
    typename Nest::Mapping items;
    for (auto [key, item] : nb::borrow<nb::dict>(source)) {
      if (!nb::isinstance<nb::str>(key)) throw nb::type_error("Keys of a nested dict must be str");
      // Reading a leaf may run Python code, which may take the item out of the dict.
      const nb::object kept = nb::borrow(item);
      std::string name = nb::cast<std::string>(key);
      items.emplace(std::move(name), ReadNest<Nest>(kept, read_leaf, depth + 1));
    }
    return Nest(std::move(items), std::move(tag));
  }
  return Nest(read_leaf(source));
}

}  // namespace nest
