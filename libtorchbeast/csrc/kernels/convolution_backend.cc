#include "kernels/convolution_backend.h"

namespace torchbeast {

#if TB_HAS_AVX512

const ConvolutionBackend& ConvolutionBackend::Best() { return Amx() ? *Amx() : *Avx512(); }

#endif

}  // namespace torchbeast
