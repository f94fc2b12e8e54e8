#include "kernels/rmsprop.h"

#include "kernels/avx512.h"

namespace torchbeast {

#if TB_HAS_AVX512

namespace {

AVX512 void Step(float* parameters, const float* gradients, float* square_averages, float* momenta,
                 int64_t size, const RmsPropOptions& options) {
  const __m512 alpha = _mm512_set1_ps(options.alpha);
  const __m512 one_less_alpha = _mm512_set1_ps(1.0f - options.alpha);
  const __m512 epsilon = _mm512_set1_ps(options.epsilon);
  const __m512 rate = _mm512_set1_ps(options.learning_rate);
  const __m512 momentum = _mm512_set1_ps(options.momentum);
  for (int64_t i = 0; i < size; i += 16) {
    const __mmask16 mask = size - i < 16 ? (1u << (size - i)) - 1 : 0xffff;
    const __m512 gradient = _mm512_maskz_loadu_ps(mask, gradients + i);
    __m512 average = _mm512_mul_ps(alpha, _mm512_maskz_loadu_ps(mask, square_averages + i));
    average = _mm512_fmadd_ps(_mm512_mul_ps(one_less_alpha, gradient), gradient, average);
    _mm512_mask_storeu_ps(square_averages + i, mask, average);
    __m512 step = _mm512_div_ps(gradient, _mm512_add_ps(_mm512_sqrt_ps(average), epsilon));
    if (momenta) {
      const __m512 past = _mm512_maskz_loadu_ps(mask, momenta + i);
      step = _mm512_fmadd_ps(momentum, past, step);
      _mm512_mask_storeu_ps(momenta + i, mask, step);
    }
    const __m512 parameter = _mm512_maskz_loadu_ps(mask, parameters + i);
    _mm512_mask_storeu_ps(parameters + i, mask, _mm512_fnmadd_ps(rate, step, parameter));
  }
}

}  // namespace

void StepRmsProp(float* parameters, const float* gradients, float* square_averages, float* momenta,
                 int64_t size, const RmsPropOptions& options) {
  Step(parameters, gradients, square_averages, momenta, size, options);
}

#else

void StepRmsProp(float*, const float*, float*, float*, int64_t, const RmsPropOptions&) {
  RequireAvx512();
}

#endif

}  // namespace torchbeast
