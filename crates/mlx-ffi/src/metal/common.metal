// The logistic function.
inline float sigmoid_of(float x) {
  return 1.0f / (1.0f + metal::precise::exp(-x));
}

// ln(1 + exp(x)). Where 1 + y rounds, the quotient has the same error as the logarithm.
inline float softplus_of(float x) {
  if (x > 20.0f) {
    return x;
  }
  const float y = metal::precise::exp(x);
  const float sum = 1.0f + y;
  return sum == 1.0f ? y : metal::precise::log(sum) * (y / (sum - 1.0f));
}

template <int ACTIVATION>
inline float activation_of(float x) {
  if (ACTIVATION == SILU) {
    return x * sigmoid_of(x);
  }
  if (ACTIVATION == GELU_TANH) {
    const float inner = 0.7978845608028654f * (x + GELU_CUBE * x * x * x);
    return 0.5f * x * (1.0f + metal::precise::tanh(metal::clamp(inner, -15.0f, 15.0f)));
  }
  if (ACTIVATION == RELU) {
    return metal::max(x, 0.0f);
  }
  if (ACTIVATION == SIGMOID) {
    return sigmoid_of(x);
  }
  if (ACTIVATION == SOFTPLUS) {
    return softplus_of(x);
  }
  return x;
}
