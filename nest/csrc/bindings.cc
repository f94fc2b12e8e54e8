// Python functions over nests: tuples, lists, dicts and namedtuples of arbitrary leaves.
//
// A Python structure is read into a nest::Nest whose tags remember the containers, worked on by the
// algorithms of nest.h, and written back with the same types.
#include <nanobind/nanobind.h>

#include <vector>

#include "nest/nest.h"
#include "nest/python.h"

namespace nb = nanobind;

namespace {

// Tagged with the Python container; invalid for leaves.
using PyNest = nest::Nest<nb::object, nb::object>;

PyNest ReadNest(nb::handle source) {
  return nest::ReadNest<PyNest>(source, [](nb::handle leaf) { return nb::borrow(leaf); });
}

nb::object WriteNest(const PyNest& source);

// A dict by sorted keys. A subclass (OrderedDict, defaultdict) keeps its order and what else it
// has.
nb::object WriteMapping(const PyNest& source) {
  const nb::object& container = source.tag();
  const bool is_plain = container.type().is(nb::handle(reinterpret_cast<PyObject*>(&PyDict_Type)));
  nb::object result = is_plain ? nb::dict() : nb::module_::import_("copy").attr("copy")(container);
  for (const auto& [key, item] : source.mapping()) {
    result[nb::str(key.data(), key.size())] = WriteNest(item);
  }
  return result;
}

nb::object WriteNest(const PyNest& source) {
  if (source.is_leaf()) return source.leaf();
  if (source.is_mapping()) return WriteMapping(source);
  nb::list items;
  for (const PyNest& item : source.sequence()) items.append(WriteNest(item));
  const nb::handle type = source.tag().type();
  if (PyType_IsSubtype((PyTypeObject*)type.ptr(), &PyList_Type)) return items;
  if (nb::hasattr(type, "_fields")) return type(*items);  // A namedtuple.
  return nb::tuple(items);
}

nb::object Map(nb::callable function, nb::handle structure) {
  return WriteNest(ReadNest(structure).map(
      [&](const nb::object& leaf) -> nb::object { return function(leaf); }));
}

nb::object MapMany(nb::callable function, nb::args structures) {
  std::vector<PyNest> nests;
  for (nb::handle structure : structures) nests.push_back(ReadNest(structure));
  return WriteNest(nest::map_many(
      [&](const std::vector<const nb::object*>& leaves) -> nb::object {
        nb::list list;
        for (const nb::object* leaf : leaves) list.append(*leaf);
        return function(list);
      },
      nests));
}

nb::object MapMany2(nb::callable function, nb::handle first, nb::handle second) {
  std::vector<PyNest> nests{ReadNest(first), ReadNest(second)};
  return WriteNest(nest::map_many([&](const std::vector<const nb::object*>& leaves)
                                      -> nb::object { return function(*leaves[0], *leaves[1]); },
                                  nests));
}

nb::list Flatten(nb::handle structure) {
  nb::list leaves;
  ReadNest(structure).for_each([&](const nb::object& leaf) { leaves.append(leaf); });
  return leaves;
}

nb::object PackAs(nb::handle structure, nb::sequence flat) {
  std::vector<nb::object> leaves;
  for (nb::handle leaf : flat) leaves.push_back(nb::borrow(leaf));
  return WriteNest(ReadNest(structure).pack_as(leaves));
}

nb::object Front(nb::handle structure) { return ReadNest(structure).front(); }

}  // namespace

NB_MODULE(_C, m) {
  m.def("map", &Map, nb::arg("function"), nb::arg("structure").none());
  m.def("map_many", &MapMany, nb::arg("function"), nb::arg("structures"));
  m.def("map_many2", &MapMany2, nb::arg("function"), nb::arg("first").none(),
        nb::arg("second").none());
  m.def("flatten", &Flatten, nb::arg("structure").none());
  m.def("pack_as", &PackAs, nb::arg("structure").none(), nb::arg("flat"));
  m.def("front", &Front, nb::arg("structure").none());
}
