// How values lie in memory between the kernels of a reference program, what it says of an element of an output, and how
// outputs are compared with that. Stands behind the text of noisy.h.

namespace exact {

struct Stored {
  double exact, variance;
  double moves[2];
  unsigned causes[2];
  unsigned unfused;  // an int, or the bits of a float
  unsigned source;   // and two flags below it
};

template <bool kInteger>
__device__ inline void store_value(Stored* to, const Noisy& value) {
  Stored stored;
  stored.exact = value.exact;
  stored.variance = value.variance;
  for (int i = 0; i < 2; ++i) stored.moves[i] = value.moves[i], stored.causes[i] = value.causes[i];
  stored.unfused = kInteger ? unsigned(int(value.unfused)) : bit_cast<unsigned>(float(value.unfused));
  stored.source = value.source << 2 | unsigned(value.fragile) << 1 | unsigned(value.overflowed);
  *to = stored;
}
template <bool kInteger>
__device__ inline Noisy load_value(const Stored* from) {
  const Stored stored = *from;
  Noisy value;
  value.exact = stored.exact;
  value.variance = stored.variance;
  for (int i = 0; i < 2; ++i) value.moves[i] = stored.moves[i], value.causes[i] = stored.causes[i];
  value.unfused = kInteger ? double(int(stored.unfused)) : double(bit_cast<float>(stored.unfused));
  value.source = stored.source >> 2;
  value.fragile = (stored.source & 2) != 0;
  value.overflowed = (stored.source & 1) != 0;
  return value;
}
// The sum of some terms, and what their order adds to its noise where they stand behind others.
struct PartOfSum {
  Noisy value;
  double partial = 0;  // sum of the sums so far
  long long terms = 0;
};
__device__ inline void count_term(PartOfSum& part) {
  part.partial += part.value.exact;
  ++part.terms;
}

// As if the terms of b had been added to a, one after the other.
__device__ inline Noisy join_sums(const Noisy& a, const PartOfSum& b, DType dtype, const noise::SumRates& rates) {
  Noisy result = noise::both(a, b.value, a.variance + b.value.variance);
  noise::follow_causes(result, a, 1);
  noise::follow_causes(result, b.value, 1);
  if (!is_float(dtype))
    return noise::whole(result, Int(a.exact) + Int(b.value.exact), Int(a.unfused) + Int(b.value.unfused));
  result.exact = a.exact + b.value.exact;
  result.unfused = static_cast<float>(a.unfused + b.value.unfused);
  result.reached = a.reached + b.value.reached;
  result.fragile |= result.reached > std::numeric_limits<float>::max();
  const double ahead = b.terms * noise::squared(a.exact) + 2 * a.exact * b.partial;
  if (ahead > 0 && (result.has_noise() || !noise::is_exact_sum(a.exact, b.value.exact)))
    result.variance += rates.partial * ahead;
  return result;
}

// Elements whose sums are long: a block makes one, each thread a part of it. `parts` is memory that the block shares.
template <class Part, class Join, class Store>
__device__ inline void make_in_parts(PartOfSum* parts, long long count, long long extent, Part part, Join join, Store store) {
  const long long self = threadIdx.x, threads = blockDim.x;
  for (long long i = blockIdx.x; i < count; i += gridDim.x) {
    parts[self] = part(i, extent * self / threads, extent * (self + 1) / threads);
    __syncthreads();
    if (self == 0) {
      Noisy whole = parts[0].value;
      for (long long p = 1; p < threads; ++p) whole = join(whole, parts[p]);
      store(i, whole);
    }
    __syncthreads();
  }
}

// A number that no other value has, but for one in 2^30 pairs, which then count as one: never 0.
__device__ inline unsigned source_of(unsigned node, long long element) {
  return ((node * 0x9e3779b1u + unsigned(element)) & 0x3fffffff) | 1u << 29;
}

template <class T>
__device__ inline double element(const T* from, long long i) {
  return to_float(from[i]);
}
__device__ inline double element(const float* from, long long i) { return from[i]; }
__device__ inline double element(const int* from, long long i) { return from[i]; }
__device__ inline double element(const unsigned char* from, long long i) { return from[i] != 0; }
template <class T>
__device__ inline bool is_one(const T*, long long) {
  return true;
}
// A bool is 0 or 1.
__device__ inline bool is_one(const unsigned char* from, long long i) { return from[i] <= 1; }

struct Wanted {
  double exact, bound;
  int demand, unused;
};

template <class Value>
__device__ inline void want(int* to, long long count, DType dtype, bool special, Value value) {
  Wanted* wanted = reinterpret_cast<Wanted*>(to);
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count; i += gridDim.x * (long long)blockDim.x) {
    const Noisy own = value(i);
    Wanted one;
    one.exact = own.exact;
    one.bound = noise::own_bound(dtype, own);
    one.demand = int(noise::demand_of(dtype, own, special));
    one.unused = 0;
    wanted[i] = one;
  }
}

// What one thread found.
struct Part {
  long long first;  // the first element that is wrong; -1: none
  double error, bound, norm, largest;
};

template <class T>
__device__ inline void compare(const int* from, const T* actual, int* to, long long count, DType dtype) {
  const Wanted* wanted = reinterpret_cast<const Wanted*>(from);
  const long long self = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  Part part;
  part.first = -1;
  part.error = part.bound = part.norm = part.largest = 0;
  for (long long i = self; i < count; i += gridDim.x * (long long)blockDim.x) {
    const Wanted one = wanted[i];
    const double is = element(actual, i);
    const Demand demand = Demand(one.demand);
    if (part.first < 0 && (!is_one(actual, i) || !noise::meets(demand, dtype, is, one.exact, one.bound))) part.first = i;
    const double difference = std::fabs(is - one.exact);
    if (!std::isfinite(difference) || !std::isfinite(one.bound) || demand == Demand::anything) continue;
    part.error += difference * difference;
    part.bound += one.bound * one.bound;
    part.norm += one.exact * one.exact;
    if (difference > 0) part.largest = std::max(part.largest, difference / one.bound);
  }
  reinterpret_cast<Part*>(to)[self] = part;
}

}  // namespace exact
