#include "python/py_tensor.h"

#include <nanobind/ndarray.h>

#include <cstring>
#include <optional>

namespace nb = nanobind;

namespace torchbeast {

namespace {

constexpr int kMaxDepth = 200;

struct DLPackType {
  nb::dlpack::dtype_code code;
  uint8_t bits;
};

// In the order of DType.
constexpr DLPackType kDLPackTypes[] = {
    {nb::dlpack::dtype_code::Bool, 8},   {nb::dlpack::dtype_code::UInt, 8},
    {nb::dlpack::dtype_code::Int, 8},    {nb::dlpack::dtype_code::Int, 16},
    {nb::dlpack::dtype_code::Int, 32},   {nb::dlpack::dtype_code::Int, 64},
    {nb::dlpack::dtype_code::Float, 16}, {nb::dlpack::dtype_code::Bfloat, 16},
    {nb::dlpack::dtype_code::Float, 32}, {nb::dlpack::dtype_code::Float, 64},
};

nb::dlpack::dtype ToDLPack(DType dtype) {
  const DLPackType& type = kDLPackTypes[static_cast<int>(dtype)];
  return {static_cast<uint8_t>(type.code), type.bits, 1};
}

std::optional<DType> FromDLPack(nb::dlpack::dtype dtype) {
  for (size_t i = 0; i < std::size(kDLPackTypes); ++i) {
    if (ToDLPack(static_cast<DType>(i)) == dtype) return static_cast<DType>(i);
  }
  return std::nullopt;
}

using Array = nb::ndarray<nb::ro, nb::device::cpu>;

bool IsContiguous(const Array& array) {
  int64_t expected = 1;
  for (int i = static_cast<int>(array.ndim()) - 1; i >= 0; --i) {
    if (array.shape(i) != 1 && array.stride(i) != expected) return false;
    expected *= static_cast<int64_t>(array.shape(i));
  }
  return true;
}

// Copies the strided block `source` (strides in elements) row by row.
void CopyStrided(const Array& array, size_t dim, const std::byte* source, int64_t item_size,
                 std::byte** target) {
  if (dim == array.ndim()) {
    std::memcpy(*target, source, item_size);
    *target += item_size;
    return;
  }
  const int64_t length = static_cast<int64_t>(array.shape(dim));
  const int64_t stride = array.stride(dim) * item_size;
  if (dim + 1 == array.ndim() && stride == item_size) {
    std::memcpy(*target, source, length * item_size);
    *target += length * item_size;
    return;
  }
  for (int64_t i = 0; i < length; ++i) {
    CopyStrided(array, dim + 1, source + i * stride, item_size, target);
  }
}

Array ImportArray(nb::handle source) {
  // DLPack exporters differ in what they do with such a tensor; none of it is what the caller wants.
  if (nb::hasattr(source, "requires_grad") && nb::cast<bool>(source.attr("requires_grad"))) {
    throw nb::value_error("A tensor that requires grad cannot be passed; use tensor.detach()");
  }
  Array array;
  if (!nb::try_cast(source, array, /*convert=*/false)) {
    // Scalars, Python's and NumPy's.
    nb::object converted = nb::module_::import_("numpy").attr("asarray")(source);
    if (!nb::try_cast(converted, array, /*convert=*/false)) {
      throw nb::type_error(("Expected a nest of CPU arrays of bool, integers or floats, got " +
                            std::string(nb::type_name(source.type()).c_str()))
                               .c_str());
    }
  }
  return array;
}

Tensor ReadTensor(nb::handle source, BufferPool& pool, bool copy) {
  Array array = ImportArray(source);
  const std::optional<DType> dtype = FromDLPack(array.dtype());
  if (!dtype) {
    throw nb::type_error("Arrays must be of bool, uint8, int8 to int64, or a float type");
  }
  Shape shape;
  for (size_t i = 0; i < array.ndim(); ++i) shape.Append(static_cast<int64_t>(array.shape(i)));
  const bool contiguous = IsContiguous(array);
  if (copy || !contiguous) {
    Tensor result = pool.Empty(*dtype, shape);
    const auto* data = static_cast<const std::byte*>(static_cast<const void*>(array.data()));
    if (contiguous) {
      std::memcpy(result.data, data, result.NumBytes());
    } else if (result.NumBytes() > 0) {
      std::byte* target = result.data;
      CopyStrided(array, 0, data, ItemSize(*dtype), &target);
    }
    return result;
  }
  Tensor result{*dtype, shape, nullptr, nullptr};
  result.data = static_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(array.data())));
  auto* holder = new Array(std::move(array));
  result.owner = std::shared_ptr<void>(result.data, [holder](void*) {
    // After the interpreter is gone there is nobody to give the reference back to.
    if (!nb::is_alive()) return;
    nb::gil_scoped_acquire gil;
    delete holder;
  });
  return result;
}

TensorNest ReadNest(nb::handle source, BufferPool& pool, bool copy, int depth) {
  if (depth > kMaxDepth) throw nest::NestError("Structure is nested too deeply");
  if (nb::isinstance<nb::tuple>(source) || nb::isinstance<nb::list>(source)) {
    TensorNest::Sequence items;
    for (nb::handle item : source) items.push_back(ReadNest(item, pool, copy, depth + 1));
    return TensorNest(std::move(items));
  }
  if (nb::isinstance<nb::dict>(source)) {
    TensorNest::Mapping items;
    for (auto [key, item] : nb::borrow<nb::dict>(source)) {
      if (!nb::isinstance<nb::str>(key)) throw nb::type_error("Keys of a nested dict must be str");
      items.emplace(nb::str(key).c_str(), ReadNest(item, pool, copy, depth + 1));
    }
    return TensorNest(std::move(items));
  }
  return TensorNest(ReadTensor(source, pool, copy));
}

template <typename... Frameworks>
nb::object Export(const Tensor& source, nb::handle owner) {
  std::array<size_t, Shape::kMaxRank> shape{};
  for (int i = 0; i < source.shape.rank(); ++i) shape[i] = static_cast<size_t>(source.shape[i]);
  return nb::cast(nb::ndarray<Frameworks...>(source.data, source.shape.rank(), shape.data(), owner,
                                             nullptr, ToDLPack(source.dtype),
                                             nb::device::cpu::value),
                  nb::rv_policy::reference);
}

}  // namespace

TensorNest ReadTensors(nb::handle source, BufferPool& pool) {
  return ReadNest(source, pool, /*copy=*/false, 0);
}

TensorNest CopyTensors(nb::handle source, BufferPool& pool) {
  return ReadNest(source, pool, /*copy=*/true, 0);
}

nb::object WriteTensor(const Tensor& source, Framework framework) {
  // The owner capsule keeps the block alive as long as the array.
  nb::capsule owner(new std::shared_ptr<void>(source.owner), [](void* pointer) noexcept {
    delete static_cast<std::shared_ptr<void>*>(pointer);
  });
  return framework == Framework::kTorch ? Export<nb::pytorch>(source, owner)
                                        : Export<nb::numpy>(source, owner);
}

nb::object WriteTensors(const TensorNest& source, Framework framework) {
  if (source.is_leaf()) return WriteTensor(source.leaf(), framework);
  if (source.is_sequence()) {
    nb::list items;
    for (const TensorNest& item : source.sequence()) items.append(WriteTensors(item, framework));
    return nb::tuple(items);
  }
  nb::dict items;
  for (const auto& [key, item] : source.mapping()) {
    items[key.c_str()] = WriteTensors(item, framework);
  }
  return items;
}

}  // namespace torchbeast
