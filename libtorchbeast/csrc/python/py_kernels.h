// Kernels of the network for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace torchbeast {

void BindKernels(nanobind::module_& m);

}  // namespace torchbeast
