// Between Python's arrays and the library's tensors: DLPack both ways, no copy where none is
// needed.
#pragma once

#include <nanobind/nanobind.h>

#include "core/tensor.h"

namespace torchbeast {

enum class Framework { kTorch, kNumpy };

// Reads a nest of arrays (torch tensors, NumPy arrays, anything with DLPack or the buffer protocol;
// Python and NumPy scalars). Shares memory where the array is contiguous, else copies into
// `buffers`. The shared arrays' references are given back under the GIL from whichever thread drops
// them last. TypeError for what is no CPU array, ValueError for a tensor that requires grad.
TensorNest ReadTensors(nanobind::handle source, BufferPool& buffers);

// As ReadTensors, but always copies: the result has no ties to Python, so threads without the GIL
// drop it for free.
TensorNest CopyTensors(nanobind::handle source, BufferPool& buffers);

// Writes a nest: tuples for sequences, dicts for mappings; arrays share the tensors' memory.
nanobind::object WriteTensors(const TensorNest& source, Framework framework);
nanobind::object WriteTensor(const Tensor& source, Framework framework);

}  // namespace torchbeast
