// Max pooling for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace torchbeast {

void BindMaxPool(nanobind::module_& m);

}  // namespace torchbeast
