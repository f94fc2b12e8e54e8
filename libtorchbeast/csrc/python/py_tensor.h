// Between Python's arrays and the library's tensors: DLPack both ways, no copy where none is
// needed.
#pragma once

#include <nanobind/nanobind.h>

#include "core/tensor.h"

namespace torchbeast {

// Reads a nest of arrays (torch tensors, NumPy arrays, anything with DLPack or the buffer protocol;
// Python and NumPy scalars). Shares memory with the array, or with a contiguous copy of it. The
// arrays' references are given back under the GIL from whichever thread drops them last. TypeError
// for what is no CPU array, ValueError for a tensor that requires grad.
TensorNest ReadTensors(nanobind::handle source);

// As ReadTensors, but copies into `buffers`: the result has no ties to Python, so threads without
// the GIL drop it for free.
TensorNest CopyTensors(nanobind::handle source, BufferPool& buffers);

// Writes a nest of torch tensors: tuples for sequences, dicts for mappings. They share the tensors'
// memory.
nanobind::object WriteTensors(const TensorNest& source);

}  // namespace torchbeast
