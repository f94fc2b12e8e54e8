// Kernels of the network and the optimizer for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace torchbeast {

void BindKernels(nanobind::module_& m);

}  // namespace torchbeast
