#include "python/py_tensor.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>

#include "nest/python.h"
#include "python/py_gil.h"
#include "python/py_sizes.h"

namespace nb = nanobind;

namespace torchbeast {

namespace {

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

// The functions of torch that are used here; null where it is not imported. Tensor.__dlpack__()
// would cost ten times as much.
struct TorchFunctions {
  nb::object tensor_type;
  nb::object to_dlpack;
  nb::object from_dlpack;
};

const TorchFunctions* Torch(bool import) {
  static TorchFunctions* functions = nullptr;  // Never freed: it may outlive the interpreter.
  if (functions == nullptr) {
    nb::dict modules(nb::module_::import_("sys").attr("modules"));
    if (!import && !modules.contains("torch")) return nullptr;
    nb::object dlpack = nb::module_::import_("torch.utils.dlpack");
    functions = new TorchFunctions{nb::module_::import_("torch").attr("Tensor"),
                                   dlpack.attr("to_dlpack"), dlpack.attr("from_dlpack")};
  }
  return functions;
}

nb::object ExportToTorch(const Tensor& source) {
  std::array<size_t, Shape::kMaxRank> shape{};
  std::copy(source.shape.begin(), source.shape.end(), shape.begin());
  auto owner = std::make_unique<std::shared_ptr<void>>(source.owner);
  const nb::capsule capsule(
      owner.get(), [](void* self) noexcept { delete static_cast<std::shared_ptr<void>*>(self); });
  owner.release();
  const nb::ndarray<> array(source.data, source.shape.rank(), shape.data(), capsule,
                            /*strides=*/nullptr, ToDLPack(source.dtype));
  return Torch(/*import=*/true)->from_dlpack(nb::cast(array));
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

Array ImportArray(nb::handle source) {
  Array array;
  const TorchFunctions* torch = Torch(/*import=*/false);
  if (torch != nullptr && nb::isinstance(source, torch->tensor_type)) {
    if (nb::cast<bool>(source.attr("requires_grad"))) {
      throw nb::value_error("A tensor that requires grad cannot be passed; use tensor.detach()");
    }
    if (nb::try_cast(torch->to_dlpack(source), array, /*convert=*/false)) return array;
    throw nb::type_error("Tensors must be dense and on the CPU");
  }
  if (nb::try_cast(source, array, /*convert=*/false)) return array;
  // Scalars, Python's and NumPy's.
  nb::object converted = nb::module_::import_("numpy").attr("asarray")(source);
  if (nb::try_cast(converted, array, /*convert=*/false)) return array;
  throw nb::type_error(("Expected a nest of CPU arrays of bool, integers or floats, got " +
                        std::string(nb::type_name(source.type()).c_str()))
                           .c_str());
}

// The array in memory of its own, row-major.
Array ImportContiguous(nb::handle source) {
  const TorchFunctions* torch = Torch(/*import=*/false);
  if (torch != nullptr && nb::isinstance(source, torch->tensor_type)) {
    return ImportArray(source.attr("contiguous")());
  }
  return ImportArray(nb::module_::import_("numpy").attr("ascontiguousarray")(source));
}

Tensor ReadTensor(nb::handle source) {
  Array array = ImportArray(source);
  const std::optional<DType> dtype = FromDLPack(array.dtype());
  if (!dtype) {
    throw nb::type_error("Arrays must be of bool, uint8, int8 to int64, or a float type");
  }
  Shape shape;
  int64_t most = kMaxElements;
  for (size_t i = 0; i < array.ndim(); ++i) {
    const auto size = static_cast<int64_t>(array.shape(i));
    shape.Append(CheckSize("the sizes of an array", size, 0, most));
    most /= std::max<int64_t>(1, size);
  }
  if (!IsContiguous(array)) {
    const Array copy = ImportContiguous(source);
    if (copy.dtype() != array.dtype() || copy.ndim() != array.ndim() ||
        !std::equal(shape.begin(), shape.end(), copy.shape_ptr())) {
      throw nb::type_error("A contiguous copy of an array has another type or shape");
    }
    array = copy;
  }
  Tensor result{*dtype, shape, nullptr, nullptr};
  result.data = static_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(array.data())));
  result.shared = true;
  auto* holder = new Array(std::move(array));
  result.owner = std::shared_ptr<void>(result.data, [holder](void*) { DeleteWithGil(holder); });
  return result;
}

Tensor CopyTensor(const Tensor& source, BufferPool& buffers) {
  Tensor result = buffers.Empty(source.dtype, source.shape);
  std::memcpy(result.data, source.data, result.NumBytes());
  return result;
}

}  // namespace

TensorNest ReadTensors(nb::handle source) { return nest::ReadNest<TensorNest>(source, ReadTensor); }

TensorNest CopyTensors(nb::handle source, BufferPool& buffers) {
  return nest::ReadNest<TensorNest>(
      source, [&buffers](nb::handle leaf) { return CopyTensor(ReadTensor(leaf), buffers); });
}

nb::object WriteTensors(const TensorNest& source) {
  if (source.is_leaf()) return ExportToTorch(source.leaf());
  if (source.is_sequence()) {
    nb::list items;
    for (const TensorNest& item : source.sequence()) items.append(WriteTensors(item));
    return nb::tuple(items);
  }
  nb::dict items;
  for (const auto& [key, item] : source.mapping()) {
    items[nb::str(key.data(), key.size())] = WriteTensors(item);
  }
  return items;
}

}  // namespace torchbeast
