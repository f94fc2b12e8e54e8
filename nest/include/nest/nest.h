// Nested structures: a leaf, a sequence of nests, or a string-keyed mapping of nests.
//
// Traversal order is depth first; sequences in index order, mappings in the order of their sorted
// keys. `Tag` is carried by every container and handed on unchanged by `map`, so that a binding can
// remember which container type to rebuild. Plain value semantics, no locks.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace nest {

// Thrown when structures that must be equal are not, or a leaf is asked of an empty nest.
class NestError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

template <typename T, typename Tag = std::monostate>
class Nest {
 public:
  using Sequence = std::vector<Nest>;
  using Mapping = std::map<std::string, Nest>;

  Nest() : value_(Sequence{}) {}
  Nest(T leaf) : value_(std::move(leaf)) {}  // NOLINT: a leaf is a nest.
  Nest(Sequence items, Tag tag = {}) : value_(std::move(items)), tag_(std::move(tag)) {}
  Nest(Mapping items, Tag tag = {}) : value_(std::move(items)), tag_(std::move(tag)) {}

  bool is_leaf() const { return std::holds_alternative<T>(value_); }
  bool is_sequence() const { return std::holds_alternative<Sequence>(value_); }
  bool is_mapping() const { return std::holds_alternative<Mapping>(value_); }

  const T& leaf() const { return std::get<T>(value_); }
  const Sequence& sequence() const { return std::get<Sequence>(value_); }
  const Mapping& mapping() const { return std::get<Mapping>(value_); }
  const Tag& tag() const { return tag_; }

  // The children of a container; 0 for a leaf.
  size_t size() const {
    if (is_leaf()) return 0;
    return is_sequence() ? sequence().size() : mapping().size();
  }

  // True if there is no leaf anywhere below.
  bool empty() const { return first_leaf() == nullptr; }

  // Calls `function(leaf)` on every leaf in order.
  template <typename Function>
  void for_each(Function&& function) const {
    if (is_leaf()) {
      function(leaf());
    } else if (is_sequence()) {
      for (const Nest& item : sequence()) item.for_each(function);
    } else {
      for (const auto& [key, item] : mapping()) item.for_each(function);
    }
  }

  // The leaves in order.
  std::vector<T> flatten() const {
    std::vector<T> leaves;
    for_each([&leaves](const T& leaf) { leaves.push_back(leaf); });
    return leaves;
  }

  // The first leaf; null if there is none.
  const T* first_leaf() const {
    if (is_leaf()) return &leaf();
    if (is_sequence()) {
      for (const Nest& item : sequence()) {
        if (const T* first = item.first_leaf()) return first;
      }
    } else {
      for (const auto& [key, item] : mapping()) {
        if (const T* first = item.first_leaf()) return first;
      }
    }
    return nullptr;
  }

  // The first leaf; NestError if there is none.
  const T& front() const {
    const T* first = first_leaf();
    if (first == nullptr) throw NestError("front() of a nest without leaves");
    return *first;
  }

  // A nest of the same structure with `function(leaf)` for every leaf. The result's leaf type is
  // whatever `function` returns.
  template <typename Function>
  auto map(Function&& function) const -> Nest<decltype(function(std::declval<const T&>())), Tag> {
    using Result = Nest<decltype(function(std::declval<const T&>())), Tag>;
    if (is_leaf()) return Result(function(leaf()));
    if (is_sequence()) {
      typename Result::Sequence items;
      items.reserve(sequence().size());
      for (const Nest& item : sequence()) items.push_back(item.map(function));
      return Result(std::move(items), tag_);
    }
    typename Result::Mapping items;
    for (const auto& [key, item] : mapping()) items.emplace(key, item.map(function));
    return Result(std::move(items), tag_);
  }

  // A nest of this structure whose leaves are taken in order from `leaves`; NestError unless there
  // are exactly as many.
  template <typename U>
  Nest<U, Tag> pack_as(const std::vector<U>& leaves) const {
    size_t next = 0;
    auto packed = map([&](const T&) -> U {
      if (next >= leaves.size()) {
        throw NestError("Too few elements in sequence: the nest needs more than " +
                        std::to_string(leaves.size()));
      }
      return leaves[next++];
    });
    if (next != leaves.size()) {
      throw NestError("Nest didn't exhaust sequence: it needs " + std::to_string(next) +
                      " elements, got " + std::to_string(leaves.size()));
    }
    return packed;
  }

  // Throws NestError naming the first place where `other` has another structure.
  template <typename U, typename OtherTag>
  void check_same_structure(const Nest<U, OtherTag>& other) const {
    const std::optional<Difference> difference = find_difference(other);
    if (!difference) return;
    const std::string place = difference->path.empty() ? "the root" : difference->path;
    throw NestError("nests don't match at " + place + ": " + difference->text);
  }

  // "a leaf", "a sequence of 2", "a mapping of 3".
  std::string describe() const {
    if (is_leaf()) return "a leaf";
    return (is_sequence() ? "a sequence of " : "a mapping of ") + std::to_string(size());
  }

  // How leaf `index` of flatten() is reached: "['key'][0]"; empty for a leaf by itself.
  std::string path_of(size_t index) const {
    if (is_sequence()) {
      for (size_t i = 0; i < sequence().size(); ++i) {
        const size_t count = sequence()[i].num_leaves();
        if (index < count) return "[" + std::to_string(i) + "]" + sequence()[i].path_of(index);
        index -= count;
      }
    } else if (is_mapping()) {
      for (const auto& [key, item] : mapping()) {
        const size_t count = item.num_leaves();
        if (index < count) return "['" + key + "']" + item.path_of(index);
        index -= count;
      }
    }
    return "";
  }

  size_t num_leaves() const {
    size_t count = 0;
    for_each([&count](const T&) { ++count; });
    return count;
  }

 private:
  // How two structures differ, and where: "['key'][0]".
  struct Difference {
    std::string text, path;
  };

  // The first difference from `other`, if there is one.
  template <typename U, typename OtherTag>
  std::optional<Difference> find_difference(const Nest<U, OtherTag>& other) const {
    if (is_leaf() && other.is_leaf()) return std::nullopt;
    if (is_leaf() || other.is_leaf() || is_sequence() != other.is_sequence()) {
      return Difference{describe() + " against " + other.describe(), ""};
    }
    if (size() != other.size()) {
      const std::string containers = is_sequence() ? "sequences" : "mappings";
      return Difference{"expected " + containers + " of same length but got " +
                            std::to_string(size()) + " vs " + std::to_string(other.size()),
                        ""};
    }
    if (is_sequence()) {
      for (size_t i = 0; i < sequence().size(); ++i) {
        if (auto difference = sequence()[i].find_difference(other.sequence()[i])) {
          return Difference{difference->text, "[" + std::to_string(i) + "]" + difference->path};
        }
      }
      return std::nullopt;
    }
    auto theirs = other.mapping().begin();
    for (const auto& [key, item] : mapping()) {
      if (theirs->first != key) {
        return Difference{"expected mappings to have same keys but found '" + key + "' vs '" +
                              theirs->first + "'",
                          ""};
      }
      if (auto difference = item.find_difference(theirs->second)) {
        return Difference{difference->text, "['" + key + "']" + difference->path};
      }
      ++theirs;
    }
    return std::nullopt;
  }

  std::variant<T, Sequence, Mapping> value_;
  Tag tag_{};
};

// A nest with the structure of the first of `nests` whose leaves are `function(leaves)`, `leaves`
// pointing to one leaf of each nest. NestError if there is no nest or the structures differ.
template <typename T, typename Tag, typename Function>
auto map_many(Function&& function, const std::vector<Nest<T, Tag>>& nests)
    -> Nest<decltype(function(std::declval<const std::vector<const T*>&>())), Tag> {
  if (nests.empty()) throw NestError("Expected at least one nest");
  const size_t num_nests = nests.size();
  // Leaf i of nest n is at [i * num_nests + n].
  std::vector<const T*> leaves;
  for (size_t n = 0; n < num_nests; ++n) {
    nests.front().check_same_structure(nests[n]);
    size_t i = n;
    nests[n].for_each([&](const T& leaf) {
      if (n == 0) leaves.resize(leaves.size() + num_nests);
      leaves[i] = &leaf;
      i += num_nests;
    });
  }
  std::vector<const T*> row(num_nests);
  size_t next = 0;
  return nests.front().map([&](const T&) {
    for (const T*& leaf : row) leaf = leaves[next++];
    return function(row);
  });
}

}  // namespace nest
