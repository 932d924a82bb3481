/* Training steps of small networks on a CPU: one call for many batches.

In PyTorch, a step of a small network is about a hundred calls, which take longer than the arithmetic. Here a step is
one function: gather a batch, score the pairs, solve the chains, differentiate, update the weights. The losses of
held-out sets use the first half of a step.

    S_j = [embeddings, numbers] of an alternative, I the same of the individual
    x_ij = a(W0 I + Wa S_i + Wb S_j + b),  then  x <- a(W x + b) layer by layer,  f_ij = w . x_ij + b
    u_j = constants + slopes . numbers_j + (v + V I) . S_j
    q_ij = exp(f_ij + u_j),  or  max(0, f_ij) + epsilon
    p = stationary distribution of q by elimination (see layers/stationary/elimination.py), loss = -log p_chosen

A network with r factors (see layers/factored) has no Wa, and scores alternatives instead of pairs:

    x_j = a(W0 I + Wb S_j + b),  then layer by layer as above,  (f_j, g_j) = W x_j + b with 2 r numbers
    q_ij = sum_k exp(f_ik) exp(g_jk + u_j)

If alternatives are a sample, each counts as W_j copies: q_ij is multiplied by W_j.

Weights with a required sign are projected to their bounds after each step. The coefficients of numbers_j in u_j,
slopes + v + V I, are clipped to the bounds of the slopes, so that no individual's taste reverses a sign.

Products are in float32, chains in double. Pairs of an alternative with itself are skipped, and sets are not padded.
The weights are a list in this order: embeddings of alternatives, embeddings of the individual, W0, Wa, Wb, b, then W
and b of each further layer, constants by category, slopes, v, V. Weights that a network lacks have size 0.
*/
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LANES 16            /* columns of a product computed together: rows of matrices are padded to a multiple */
#define ROWS 6              /* rows of a product computed together */
#define PAIRS_PER_CHUNK 128 /* or alternatives: their layers fit into the cache; a larger set is a chunk of its own size */
#define SETS_PER_PASS 64    /* sets whose losses are computed in one pass */
#define MAX_LAYERS 64       /* layers, or categorical columns: MAX_LAYERS_OR_COLUMNS in Python */
#define MAX_UTILITY 1e30f   /* utilities that overflow are clipped to this */

/* Versions of a function for newer processors, one of which is selected when the library is loaded. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && __GNUC__ >= 12
#define FOR_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v3", "default")))
#define CLONES
#else
#define FOR_EACH_PROCESSOR
#endif

#ifdef _WIN32
#include <malloc.h>
#define EXPORT __declspec(dllexport)
static void *allocate(size_t size) { return _aligned_malloc(size, 64); }
static void release(void *memory) { _aligned_free(memory); }
#else
#define EXPORT
static void *allocate(size_t size) {
    void *memory = NULL;
    return posix_memalign(&memory, 64, size) ? NULL : memory;
}
static void release(void *memory) { free(memory); }
#endif

/* -- vectors of eight numbers, which need not be aligned ------------------------------------------------------ */

#ifdef _MSC_VER
#define INLINE static __forceinline
#else
#define INLINE static inline __attribute__((always_inline))
#endif

/* Vectors of 32 bytes if the processor may have AVX: the longer vectors of newer processors are not faster (measured).
   Otherwise pairs of 16 bytes, because compilers keep longer vectors in memory: on x86-64, steps take 10 times longer. */
#if !defined(_MSC_VER) && (defined(__AVX__) || defined(CLONES)) && !defined(PCMCNET_NO_AVX)
typedef float vec __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t bits __attribute__((vector_size(32)));

INLINE vec zeros(void) { return (vec){0}; }
INLINE vec load(const float *from) { return *(const vec *)from; }
INLINE void store(float *to, vec x) { *(vec *)to = x; }
INLINE vec plus(vec a, vec b) { return a + b; }
INLINE vec plus_product(vec sum, float a, vec b) { return sum + a * b; }
INLINE vec plus_products(vec sum, vec a, vec b) { return sum + a * b; }
INLINE vec times(float a, vec b) { return a * b; }

/* x if ``at`` is above 0, otherwise slope * x. */
INLINE vec leaky(vec x, vec at, float slope) {
    bits above = (bits)(at > 0);
    return (vec)((above & (bits)x) | (~above & (bits)(slope * x)));
}
#else
#ifdef _MSC_VER
#include <emmintrin.h>
typedef __m128 half;
INLINE half half_of(float x) { return _mm_set1_ps(x); }
INLINE half load_half(const float *from) { return _mm_loadu_ps(from); }
INLINE void store_half(float *to, half x) { _mm_storeu_ps(to, x); }
INLINE half plus_half(half a, half b) { return _mm_add_ps(a, b); }
INLINE half plus_product_half(half sum, half a, half b) { return _mm_add_ps(sum, _mm_mul_ps(a, b)); }
INLINE half leaky_half(half x, half at, half slope) {
    half above = _mm_cmpgt_ps(at, _mm_setzero_ps());
    return _mm_or_ps(_mm_and_ps(above, x), _mm_andnot_ps(above, _mm_mul_ps(slope, x)));
}
#else
typedef float half __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t bits __attribute__((vector_size(16)));
INLINE half half_of(float x) { return (half){x, x, x, x}; }
INLINE half load_half(const float *from) { return *(const half *)from; }
INLINE void store_half(float *to, half x) { *(half *)to = x; }
INLINE half plus_half(half a, half b) { return a + b; }
INLINE half plus_product_half(half sum, half a, half b) { return sum + a * b; }
INLINE half leaky_half(half x, half at, half slope) {
    bits above = (bits)(at > 0);
    return (half)((above & (bits)x) | (~above & (bits)(slope * x)));
}
#endif

typedef struct {
    half low, high;
} vec;

INLINE vec pair(half low, half high) {
    vec x;
    x.low = low, x.high = high;
    return x;
}
INLINE vec zeros(void) { return pair(half_of(0), half_of(0)); }
INLINE vec load(const float *from) { return pair(load_half(from), load_half(from + 4)); }
INLINE void store(float *to, vec x) { store_half(to, x.low), store_half(to + 4, x.high); }
INLINE vec plus(vec a, vec b) { return pair(plus_half(a.low, b.low), plus_half(a.high, b.high)); }
INLINE vec plus_products(vec sum, vec a, vec b) {
    return pair(plus_product_half(sum.low, a.low, b.low), plus_product_half(sum.high, a.high, b.high));
}
INLINE vec plus_product(vec sum, float a, vec b) { return plus_products(sum, pair(half_of(a), half_of(a)), b); }
INLINE vec times(float a, vec b) { return plus_product(zeros(), a, b); }
INLINE vec leaky(vec x, vec at, float slope) {
    return pair(leaky_half(x.low, at.low, half_of(slope)), leaky_half(x.high, at.high, half_of(slope)));
}
#endif

typedef struct { /* A weight with its Adam state. */
    float *value, *mean, *square;
    int64_t size;
    float decay, prior; /* prior: factor of the weight that is added to its gradient */
    int32_t moves, unused;
    const float *low, *high; /* bounds of each number; NULL if there are none */
} Weight;

typedef struct {
    int64_t layers, numbers, categories, own_numbers, own_categories; /* hidden layers; numbers of columns */
    int64_t width[MAX_LAYERS], embedding[MAX_LAYERS], own_embedding[MAX_LAYERS]; /* of layers and embeddings */
    int64_t utility, exponential, labels; /* has utilities u; rates are exp(f); size of ``items``, or 0 */
    int64_t rank;                         /* number r of factors, or 0 if pairs are scored */
    double slope, epsilon, floor;         /* slope of the activation below 0; constants of the rates */
    const float *items;                   /* (labels, labels) added to the scores, by first category */
} Network;

typedef struct {
    const int64_t *starts, *counts, *categorical, *own_categorical, *chosen;
    const float *numeric, *own_numeric, *weight;
    const float *log_expansion; /* log W of each alternative; NULL if all alternatives are present */
} Sets;

typedef struct {
    double clip, beta1, beta2, eps;
    int64_t taken; /* steps before these */
} Optimiser;

INLINE int64_t padded(int64_t n) { return (n + LANES - 1) / LANES * LANES; }
INLINE double larger(double a, double b) { return a > b ? a : b; } /* b if b is NaN */

/* -- products ------------------------------------------------------------------------------------------------- */

/* Apply the activation to x, or multiply x by its slopes at its inputs or outputs ``at``. */
INLINE void put_leaky(float *to, vec x, vec at, float slope) { store(to, leaky(x, at, slope)); }

/* Use of a product: c = a b, c += a b, c += a' b, c = activation(a b + bias), or c = a b times the slopes of the
   activation at its outputs. */
enum { SET, ADD, ADD_TRANSPOSED, ACTIVATE, BACK };

/* Compute m rows and 16 columns of c; a[i, k] is at a[i * row + k * step], rows of b and c have length n. ``with`` is
   the bias or the outputs. */
INLINE void block(int what, int m, int64_t n, int64_t depth, const float *a, int64_t row, int64_t step, const float *b,
                  float *c, const float *with, float slope) {
    vec sum[ROWS][2];
    for (int i = 0; i < m; i++)
        for (int h = 0; h < 16; h += 8)
            sum[i][h / 8] = what == ACTIVATE ? load(with + h) : what == ADD ? load(c + i * n + h) : zeros();
    for (int64_t k = 0; k < depth; k++) {
        vec b0 = load(b + k * n), b1 = load(b + k * n + 8);
        for (int i = 0; i < m; i++) {
            float x = a[i * row + k * step];
            sum[i][0] = plus_product(sum[i][0], x, b0);
            sum[i][1] = plus_product(sum[i][1], x, b1);
        }
    }
    for (int i = 0; i < m; i++)
        for (int h = 0; h < 16; h += 8) {
            vec x = sum[i][h / 8], at = what == BACK ? load(with + i * n + h) : x;
            if (what == SET || what == ADD) store(c + i * n + h, x);
            else put_leaky(c + i * n + h, x, at, slope);
        }
}

/* Compute all rows of c, block by block along a row, so that rows of a are read from the cache. */
INLINE void blocks(int what, int64_t m, int64_t n, int64_t depth, const float *a, int64_t row, int64_t step, const float *b,
                   float *c, const float *with, float slope) {
    for (int64_t i = 0; i < m; i += ROWS)
        for (int64_t j = 0; j < n; j += LANES) {
            const float *rows = a + i * row, *extra = what == BACK ? with + i * n + j : what == ACTIVATE ? with + j : NULL;
            float *to = c + i * n + j;
            switch (m - i) {
            case 1: block(what, 1, n, depth, rows, row, step, b + j, to, extra, slope); break;
            case 2: block(what, 2, n, depth, rows, row, step, b + j, to, extra, slope); break;
            case 3: block(what, 3, n, depth, rows, row, step, b + j, to, extra, slope); break;
            case 4: block(what, 4, n, depth, rows, row, step, b + j, to, extra, slope); break;
            case 5: block(what, 5, n, depth, rows, row, step, b + j, to, extra, slope); break;
            default: block(what, ROWS, n, depth, rows, row, step, b + j, to, extra, slope);
            }
        }
}

/* Multiply a (m, depth), with rows ``wide`` apart, or its transpose, by b (depth, n); n is a multiple of 16. */
FOR_EACH_PROCESSOR
static void multiply(int what, int64_t m, int64_t n, int64_t depth, const float *a, int64_t wide, const float *b, float *c,
                     const float *with, float slope) {
    switch (what) {
    case SET: blocks(SET, m, n, depth, a, wide, 1, b, c, with, slope); break;
    case ADD: blocks(ADD, m, n, depth, a, wide, 1, b, c, with, slope); break;
    case ADD_TRANSPOSED: blocks(ADD, m, n, depth, a, 1, wide, b, c, with, slope); break;
    case ACTIVATE: blocks(ACTIVATE, m, n, depth, a, wide, 1, b, c, with, slope); break;
    case BACK: blocks(BACK, m, n, depth, a, wide, 1, b, c, with, slope); break;
    }
}

INLINE void add_row(int64_t n, float *to, float factor, const float *from) { /* n is a multiple of 16 */
    for (int64_t j = 0; j < n; j += 8) store(to + j, plus_product(load(to + j), factor, load(from + j)));
}

INLINE float dot(int64_t n, const float *a, const float *b) { /* n is a multiple of 16 */
    vec sum = zeros();
    for (int64_t j = 0; j < n; j += 8) sum = plus_products(sum, load(a + j), load(b + j));
    float x[8];
    store(x, sum);
    return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}

/* Copy w (rows, columns), with rows ``wide`` apart, to (rows, padded columns) or, transposed, (columns, padded rows). */
INLINE void pack(const float *w, int64_t wide, int64_t rows, int64_t columns, int transposed, float *to) {
    int64_t length = padded(transposed ? rows : columns);
    memset(to, 0, sizeof(float) * (size_t)((transposed ? columns : rows) * length));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) to[transposed ? j * length + i : i * length + j] = w[i * wide + j];
}

/* Add a gradient with padded rows, or its transpose, to the gradient (rows, columns) of a weight. */
INLINE void unpack(const float *from, int64_t rows, int64_t columns, int transposed, float *grad) {
    int64_t length = padded(transposed ? rows : columns);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) grad[i * columns + j] += from[transposed ? j * length + i : i * length + j];
}

/* -- the chain of one set ------------------------------------------------------------------------------------- */

/* Solve the chain of rates q (n, n), which are overwritten by factors -> p (n,). */
INLINE void solve(int64_t n, double *q, double *exits, double *p) {
    for (int64_t k = n - 1; k > 0; k--) {
        double *leave = q + k * n, s = 0;
        for (int64_t j = 0; j < k; j++) s += leave[j];
        for (int64_t j = 0; j < k; j++) leave[j] /= s;
        for (int64_t i = 0; i < k; i++)
            for (int64_t j = 0; j < k; j++) q[i * n + j] += q[i * n + k] * leave[j];
        exits[k] = s;
    }
    p[0] = 1;
    for (int64_t k = 1; k < n; k++) {
        double odds = 0;
        for (int64_t i = 0; i < k; i++) odds += p[i] * q[i * n + k];
        p[k] = odds / exits[k];
        double whole = 1 + p[k];
        for (int64_t i = 0; i <= k; i++) p[i] /= whole;
    }
}

/* From the factors of the elimination, p and b = dL/dp (n,), with sum b p = 0, compute flow (n, n) = dL/dq. b is
   overwritten. */
INLINE void pull_back_chain(int64_t n, const double *q, const double *exits, const double *p, double *b, double *flow) {
    for (int64_t k = n - 1; k > 0; k--) {
        b[k] /= exits[k];
        for (int64_t i = 0; i < k; i++) b[i] += q[i * n + k] * b[k];
    }
    memset(flow, 0, sizeof(double) * (size_t)(n * n));
    for (int64_t k = 1; k < n; k++) {
        const double *leave = q + k * n;
        double *gain = flow + k * n, mean = 0;
        for (int64_t i = 0; i < k; i++) {
            double sum = p[i] * b[k], enter = q[i * n + k], *row = flow + i * n;
            for (int64_t j = 0; j < k; j++) {
                sum += row[j] * leave[j];
                gain[j] += row[j] * enter;
            }
            row[k] = sum;
        }
        for (int64_t j = 0; j < k; j++) mean += gain[j] * leave[j];
        for (int64_t j = 0; j < k; j++) gain[j] = (gain[j] - mean) / exits[k] - p[k] * b[k];
    }
}

/* Whether the rates of each state are divided by the largest of them: see layers/stationary/log_distribution.py. */
INLINE int by_rows(const Network *net) { return net->exponential && net->epsilon == 0 && !net->utility; }

/* Compute rates q from scores (n, n) and utilities (n,), divided by the largest, and their slopes; return the largest.
   ``level`` is the largest score of each row, or of the set. ``expansion`` contains log W (n,), or is NULL. */
INLINE double rates_of(const Network *net, int64_t n, const float *f, const float *u, const float *expansion, double *q,
                       double *slope, double *level) {
    double top = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        level[i] = -INFINITY;
        for (int64_t j = 0; j < n; j++) {
            if (i == j) continue;
            double s = net->exponential ? (double)f[i * n + j] + u[j] : larger(0, f[i * n + j]) + net->epsilon;
            q[i * n + j] = s;
            if (!(s <= level[i])) level[i] = s; /* NaN stays NaN */
        }
        if (!(level[i] <= top)) top = level[i];
    }
    if (net->exponential && net->epsilon > 0) top = larger(top, log(net->epsilon));
    if (!by_rows(net))
        for (int64_t i = 0; i < n; i++) level[i] = top;
    double shift = net->exponential && net->epsilon > 0 ? net->epsilon * exp(-top) : 0, scale = 0; /* not 0 * inf */
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            int64_t at = i * n + j;
            double e = i == j ? 0 : net->exponential ? exp(q[at] - level[i]) : q[at] / top;
            slope[at] = net->exponential ? e : (i != j && f[at] > 0) / top;
            q[at] = i == j ? 0 : e + shift + net->floor;
            scale = larger(scale, q[at]);
        }
    if (expansion) {
        scale = 0;
        for (int64_t j = 0; j < n; j++) {
            double copies = exp((double)expansion[j]);
            for (int64_t at = j; at < n * n; at += n) {
                slope[at] *= copies, q[at] *= copies;
                scale = larger(scale, q[at]);
            }
        }
    }
    for (int64_t at = 0; at < n * n; at++) q[at] /= scale;
    return scale;
}

/* Given the levels of the rows and the distribution p of the scaled rates, compute tilt, so that p tilt is the
   distribution of the unscaled rates; return log tilt_chosen. */
INLINE double tilt_of(const Network *net, int64_t n, const double *level, const double *p, int64_t chosen, double *tilt) {
    double low = INFINITY, whole = 0;
    for (int64_t i = 0; i < n; i++) {
        tilt[i] = 1;
        if (!(level[i] >= low)) low = level[i];
    }
    if (!by_rows(net)) return 0;
    for (int64_t i = 0; i < n; i++) whole += p[i] * (tilt[i] = exp(low - level[i]));
    for (int64_t i = 0; i < n; i++) tilt[i] /= whole;
    return low - level[chosen] - log(whole);
}

/* Return the loss of a set, given scores and utilities. In a step, overwrite the scores with their gradient and add
   that of u to ``du``; ``weight`` is the set's share of the batch. */
INLINE double loss_of(const Network *net, int step, int64_t n, float *f, const float *u, const float *expansion, float *du,
                      double *work, int64_t chosen, double weight) {
    double *q = work, *slope = q + n * n, *flow = slope + n * n, *exits = flow + n * n, *p = exits + n, *b = p + n;
    double *level = b + n, *tilt = level + n;
    double scale = rates_of(net, n, f, u, expansion, q, slope, level);
    solve(n, q, exits, p);
    double loss = -log(p[chosen]) - tilt_of(net, n, level, p, chosen, tilt);
    if (!step) return loss;
    /* the derivative of -log p_chosen + log sum p tilt, where sum p tilt = 1 */
    for (int64_t i = 0; i < n; i++) b[i] = weight * (tilt[i] - (i == chosen) / p[chosen]);
    pull_back_chain(n, q, exits, p, b, flow);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double g = i == j ? 0 : flow[i * n + j] * slope[i * n + j] / scale;
            f[i * n + j] = (float)g;
            du[j] += (float)g;
        }
    return loss;
}

/* -- the chain of one set, with r factors ----------------------------------------------------------------------- */

/* Smallest probability of a factor, and of moving from one to another: see layers/factored/solution.py. */
#define SMALLEST 0x1p-970
#define SMALL_ENTRY 1e-250 /* smaller shares of entries are computed from logarithms */

/* From the factors (n, 2 r), with rows ``wide`` apart, and the utilities u (n,) compute the two steps of a transition:
   a (n, r), the logarithms of the totals V (r,), w (n, r) and log d (n,). ``sum`` and ``top`` (r,) are overwritten. */
INLINE void two_steps(int64_t n, int64_t r, int64_t wide, const float *f, const float *u, double *a, double *log_total,
                      double *w, double *log_d, double *sum, double *top) {
    /* 1. a_jk = v_jk / V_k */
    for (int64_t k = 0; k < r; k++) top[k] = -INFINITY, sum[k] = 0;
    for (int64_t j = 0; j < n; j++)
        for (int64_t k = 0; k < r; k++) {
            double log_v = a[j * r + k] = (double)f[j * wide + r + k] + u[j];
            if (!(log_v <= top[k])) top[k] = log_v;
        }
    for (int64_t j = 0; j < n; j++)
        for (int64_t k = 0; k < r; k++) sum[k] += a[j * r + k] = exp(a[j * r + k] - top[k]);
    for (int64_t k = 0; k < r; k++) log_total[k] = top[k] + log(sum[k]);
    for (int64_t j = 0; j < n; j++)
        for (int64_t k = 0; k < r; k++) a[j * r + k] /= sum[k];
    /* 2. w_ik = u_ik V_k / d_i */
    for (int64_t i = 0; i < n; i++) {
        double *leave = w + i * r, most = -INFINITY, d = 0;
        for (int64_t k = 0; k < r; k++) {
            leave[k] = (double)f[i * wide + k] + log_total[k];
            if (!(leave[k] <= most)) most = leave[k];
        }
        for (int64_t k = 0; k < r; k++) d += leave[k] = exp(leave[k] - most);
        for (int64_t k = 0; k < r; k++) leave[k] /= d;
        log_d[i] = most + log(d);
    }
}

/* Return log e of an alternative, the share of transitions that enter it, and compute the shares rho (r,) of the factors
   in e, from a (r,) and the distribution b (r,) of the factors. g (r,) and u give log v. */
INLINE double log_entries(int64_t r, const float *g, float u, const double *a, const double *log_total, const double *b,
                          double *rho) {
    double e = 0, most = -INFINITY, whole = 0;
    for (int64_t k = 0; k < r; k++) e += rho[k] = a[k] * b[k];
    if (!(e <= SMALL_ENTRY)) {
        for (int64_t k = 0; k < r; k++) rho[k] /= e;
        return log(e);
    }
    for (int64_t k = 0; k < r; k++) {
        rho[k] = (double)g[k] + u - log_total[k] + log(b[k]);
        most = larger(rho[k], most);
    }
    for (int64_t k = 0; k < r; k++) whole += rho[k] = exp(rho[k] - most);
    for (int64_t k = 0; k < r; k++) rho[k] /= whole;
    return most + log(whole);
}

/* Compute c (n, r) = a (n, r) m (r, r). */
INLINE void product(int64_t n, int64_t r, const double *a, const double *m, double *c) {
    memset(c, 0, sizeof(double) * (size_t)(n * r));
    for (int64_t i = 0; i < n; i++)
        for (int64_t l = 0; l < r; l++)
            for (int64_t k = 0; k < r; k++) c[i * r + k] += a[i * r + l] * m[l * r + k];
}

/* Return the number of doubles of memory that ``factored_loss`` needs. */
INLINE int64_t factored_work(int64_t n, int64_t r) { return 5 * n * r + 2 * n + 3 * r * r + 5 * r; }

/* Return the loss of a set, given the factors (n, 2 r), with rows ``wide`` apart, and utilities. In a step, overwrite the
   factors with their gradient and add that of u to ``du``; ``weight`` is the set's share of the batch. The formulas are
   those of layers/factored/solution.py. */
INLINE double factored_loss(int step, int64_t n, int64_t r, int64_t wide, float *f, const float *u, float *du, double *work,
                            int64_t chosen, double weight) {
    double *a = work, *w = a + n * r, *rho = w + n * r, *by_u = rho + n * r, *by_a = by_u + n * r, *h = by_a + n * r;
    double *log_d = h + n, *chain = log_d + n, *flow = chain + r * r, *turned = flow + r * r, *log_total = turned + r * r;
    double *b = log_total + r, *by_b = b + r, *exits = by_b + r, *by_total = exits + r;
    /* 1. The chain of the factors: from a factor to an alternative, and from there to the next factor. */
    two_steps(n, r, wide, f, u, a, log_total, w, log_d, exits, b);
    for (int64_t at = 0; at < r * r; at++) chain[at] = SMALLEST;
    for (int64_t i = 0; i < n; i++)
        for (int64_t l = 0; l < r; l++)
            for (int64_t k = 0; k < r; k++) chain[l * r + k] += a[i * r + l] * w[i * r + k];
    solve(r, chain, exits, b);
    for (int64_t k = 0; k < r; k++) b[k] = larger(SMALLEST, b[k]);
    /* 2. Probabilities are proportional to entries times stays; h contains their logarithms, then their shares. */
    double top = -INFINITY, whole = 0;
    for (int64_t i = 0; i < n; i++) {
        h[i] = log_entries(r, f + i * wide + r, u[i], a + i * r, log_total, b, rho + i * r) - log_d[i];
        if (!(h[i] <= top)) top = h[i];
    }
    double loss = top - h[chosen];
    for (int64_t i = 0; i < n; i++) whole += h[i] = exp(h[i] - top);
    loss += log(whole);
    if (!step) return loss;
    /* 3. The derivative h by log(e / d), and by b through the entries. */
    for (int64_t k = 0; k < r; k++) by_b[k] = by_total[k] = 0;
    for (int64_t i = 0; i < n; i++) {
        h[i] = weight * (h[i] / whole - (i == chosen));
        for (int64_t k = 0; k < r; k++) by_b[k] += h[i] * rho[i * r + k];
    }
    for (int64_t k = 0; k < r; k++) by_b[k] /= b[k];
    /* 4. The derivative by the chain of the factors. */
    pull_back_chain(r, chain, exits, b, by_b, flow);
    for (int64_t l = 0; l < r; l++)
        for (int64_t k = 0; k < r; k++) turned[k * r + l] = flow[l * r + k];
    /* 5. The derivatives by log u and log a, back through both steps of a transition. */
    product(n, r, a, flow, by_u);
    product(n, r, w, turned, by_a);
    for (int64_t i = 0; i < n; i++) {
        double sum = h[i];
        for (int64_t k = 0; k < r; k++) sum += by_u[i * r + k] *= w[i * r + k];
        for (int64_t k = 0; k < r; k++) {
            int64_t at = i * r + k;
            by_u[at] -= w[at] * sum;
            by_a[at] = h[i] * rho[at] + a[at] * by_a[at];
            by_total[k] += by_u[at] - by_a[at];
        }
    }
    /* 6. The derivatives by f, g and u. */
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < r; k++) {
            float by_v = (float)(by_a[i * r + k] + a[i * r + k] * by_total[k]);
            f[i * wide + k] = (float)by_u[i * r + k];
            f[i * wide + r + k] = by_v;
            du[i] += by_v;
        }
    return loss;
}

/* -- a batch -------------------------------------------------------------------------------------------------- */

typedef struct { /* A network with its weights, and the memory of a step; dX is the gradient of X */
    const Network *net;
    const Sets *sets;
    Weight *weights;
    int64_t D, D0, Dp, D0p, H, Hp, count;               /* widths of S, I and of the first layer; number of weights */
    int64_t E, E0, Ep, E0p;                             /* widths of the embeddings, the first columns of S and I */
    int64_t own, first, later, constants, slopes;       /* first weight of each group */
    float *grad[6 * MAX_LAYERS];                        /* of each weight */
    float *S, *I, *leave, *enter, *who, *taste, *u;     /* rows of alternatives, or of sets */
    float *dS, *dI, *dleave, *denter, *dwho, *dtaste, *du;
    float *inside;                                      /* (B, Dp) 0 for coefficients that are clipped, otherwise 1 */
    float *x[MAX_LAYERS], *dx, *dy, *f, *matrix;        /* rows of pairs */
    float *W[MAX_LAYERS], *Wt[MAX_LAYERS], *bias[MAX_LAYERS]; /* packed weights of the layers, and gradients */
    float *dW[MAX_LAYERS], *dbias[MAX_LAYERS], *packed, *sum;
    double *losses;                                     /* of the sets */
    double *work;
} Step;

INLINE float *value(const Step *t, int64_t k) { return t->weights[k].value; }

/* Width of a layer; the last one has one score, or the factors. */
INLINE int64_t width_of(const Network *net, int64_t k) {
    return k < net->layers ? net->width[k] : net->rank ? 2 * net->rank : 1;
}

/* Represent an alternative or an individual: embeddings, then numeric columns. */
INLINE void represent(const Step *t, int own, int64_t row, int64_t at) {
    const Network *net = t->net;
    int64_t columns = own ? net->own_categories : net->categories, numbers = own ? net->own_numbers : net->numbers;
    const int64_t *code = (own ? t->sets->own_categorical : t->sets->categorical) + at * columns;
    float *to = own ? t->I + row * t->D0p : t->S + row * t->Dp; /* the padding stays 0 */
    for (int64_t k = 0; k < columns; k++) {
        int64_t wide = own ? net->own_embedding[k] : net->embedding[k];
        const float *from = value(t, own ? t->own + k : k) + code[k] * wide;
        for (int64_t j = 0; j < wide; j++) *to++ = from[j];
    }
    const float *number = (own ? t->sets->own_numeric : t->sets->numeric) + at * numbers;
    for (int64_t k = 0; k < numbers; k++) to[k] = number[k];
}

/* Add the gradient of a representation to the embeddings; category 0 (unseen) has none. */
INLINE void embed_gradient(const Step *t, int own, int64_t row, int64_t at) {
    const Network *net = t->net;
    int64_t columns = own ? net->own_categories : net->categories;
    const int64_t *code = (own ? t->sets->own_categorical : t->sets->categorical) + at * columns;
    const float *from = own ? t->dI + row * t->E0p : t->dS + row * t->Ep;
    for (int64_t k = 0; k < columns; k++) {
        int64_t wide = own ? net->own_embedding[k] : net->embedding[k];
        float *to = t->grad[own ? t->own + k : k] + code[k] * wide;
        if (code[k])
            for (int64_t j = 0; j < wide; j++) to[j] += from[j];
        from += wide;
    }
}

/* Clip the coefficients of numbers, slopes + v + V I, to the bounds of the slopes. */
INLINE void clip_tastes(Step *t, int64_t B) {
    const Weight *slopes = t->weights + t->slopes;
    if (!slopes->low) return;
    for (int64_t s = 0; s < B; s++)
        for (int64_t k = 0; k < t->net->numbers; k++) {
            float *taste = t->taste + s * t->Dp + t->E + k, low = slopes->low[k], high = slopes->high[k];
            t->inside[s * t->Dp + t->E + k] = *taste >= low && *taste <= high;
            *taste = *taste < low ? low : *taste > high ? high : *taste;
        }
}

/* Set the gradient of clipped coefficients to 0. */
INLINE void mask_clipped(Step *t, int64_t B) {
    if (!t->weights[t->slopes].low) return;
    for (int64_t s = 0; s < B; s++)
        for (int64_t k = t->E; k < t->D; k++) t->dtaste[s * t->Dp + k] *= t->inside[s * t->Dp + k];
}

/* Represent the sets, and compute what is linear in one alternative: the parts of the first layer, and utilities. */
INLINE void gather(Step *t, const int64_t *batch, int64_t B) {
    const Network *net = t->net;
    int64_t R = 0;
    for (int64_t s = 0; s < B; s++) {
        represent(t, 1, s, batch[s]);
        for (int64_t j = 0; j < t->sets->counts[batch[s]]; j++) represent(t, 0, R++, t->sets->starts[batch[s]] + j);
    }
    if (!net->rank) {
        pack(value(t, t->first + 1), t->D, t->H, t->D, 1, t->packed);
        multiply(SET, R, t->Hp, t->D, t->S, t->Dp, t->packed, t->leave, NULL, 0);
    }
    pack(value(t, t->first + 2), t->D, t->H, t->D, 1, t->packed);
    multiply(SET, R, t->Hp, t->D, t->S, t->Dp, t->packed, t->enter, NULL, 0);
    if (t->D0) {
        pack(value(t, t->first), t->D0, t->H, t->D0, 1, t->packed);
        multiply(SET, B, t->Hp, t->D0, t->I, t->D0p, t->packed, t->who, NULL, 0);
    }
    if (net->utility) {
        pack(value(t, t->slopes + 1), t->D, 1, t->D, 0, t->packed);
        for (int64_t k = 0; k < net->numbers; k++) t->packed[t->E + k] += value(t, t->slopes)[k];
        for (int64_t s = 0; s < B; s++) memcpy(t->taste + s * t->Dp, t->packed, sizeof(float) * (size_t)t->Dp);
        if (t->D0) {
            pack(value(t, t->slopes + 2), t->D0, t->D, t->D0, 1, t->packed);
            multiply(ADD, B, t->Dp, t->D0, t->I, t->D0p, t->packed, t->taste, NULL, 0);
        }
        clip_tastes(t, B);
    }
    const float *expansion = net->rank ? t->sets->log_expansion : NULL; /* part of log v; pairs: see rates_of */
    for (int64_t s = 0, r = 0; s < B; s++)
        for (int64_t j = 0; j < t->sets->counts[batch[s]]; j++, r++) {
            const int64_t at = t->sets->starts[batch[s]] + j, *code = t->sets->categorical + at * net->categories;
            if (t->D0) add_row(t->Hp, (net->rank ? t->enter : t->leave) + r * t->Hp, 1, t->who + s * t->Hp);
            add_row(t->Hp, t->enter + r * t->Hp, 1, t->bias[0]);
            t->u[r] = expansion ? expansion[at] : 0;
            if (!net->utility) continue;
            float u = dot(t->Dp, t->S + r * t->Dp, t->taste + s * t->Dp);
            for (int64_t k = 0; k < net->categories; k++) u += value(t, t->constants + k)[code[k]];
            t->u[r] += isfinite(u) ? u : isnan(u) ? 0 : copysignf(MAX_UTILITY, u);
        }
}

/* Compute the layers between the first and the last, for P pairs or alternatives. */
INLINE void apply_layers(Step *t, int64_t P) {
    for (int64_t k = 1; k < t->net->layers; k++) {
        int64_t wide = padded(t->net->width[k]), before = padded(t->net->width[k - 1]);
        float slope = (float)t->net->slope;
        multiply(ACTIVATE, P, wide, t->net->width[k - 1], t->x[k - 1], before, t->Wt[k], t->x[k], t->bias[k], slope);
    }
}

/* Compute the factors of P alternatives, of which the first is in row r -> f (P, padded 2 rank). */
INLINE void score_factors(Step *t, int64_t P, int64_t r) {
    const Network *net = t->net;
    int64_t L = net->layers, wide = padded(width_of(net, L));
    float slope = L ? (float)net->slope : 1, *x = L ? t->x[0] : t->f;
    for (int64_t at = 0; at < P * t->Hp; at += 8) {
        vec sum = load(t->enter + r * t->Hp + at);
        put_leaky(x + at, sum, sum, slope);
    }
    apply_layers(t, P);
    if (!L) return;
    int64_t before = net->width[L - 1];
    multiply(ACTIVATE, P, wide, before, t->x[L - 1], padded(before), t->Wt[L], t->f, t->bias[L], 1);
}

/* Score the pairs of some sets, whose first alternative is in row r -> f (P,). */
INLINE void score(Step *t, const int64_t *batch, int64_t sets, int64_t r) {
    int64_t P = 0, L = t->net->layers;
    float slope = L ? (float)t->net->slope : 1, *x = t->x[0];
    for (int64_t s = 0; s < sets; s++) {
        int64_t n = t->sets->counts[batch[s]];
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) {
                if (i == j) continue;
                const float *a = t->leave + (r + i) * t->Hp, *b = t->enter + (r + j) * t->Hp;
                for (int64_t h = 0; h < t->Hp; h += 8) {
                    vec sum = plus(load(a + h), load(b + h));
                    put_leaky(x + P * t->Hp + h, sum, sum, slope);
                }
                P++;
            }
        r += n;
    }
    apply_layers(t, P);
    int64_t last = L ? padded(t->net->width[L - 1]) : t->Hp;
    for (int64_t p = 0; p < P; p++)
        t->f[p] = dot(last, t->x[L ? L - 1 : 0] + p * last, t->W[L]) + (L ? t->bias[L][0] : 0);
}

/* Compute the losses of some sets from the scores f (P,) of their pairs; in a step, overwrite f with gradients. */
INLINE void solve_sets(Step *t, int step, const int64_t *batch, int64_t sets, int64_t r, double whole, double *losses) {
    const Network *net = t->net;
    float *f = t->f, *m = t->matrix;
    for (int64_t s = 0; s < sets; s++) {
        int64_t n = t->sets->counts[batch[s]], at = t->sets->starts[batch[s]], chosen = t->sets->chosen[batch[s]];
        for (int64_t i = 0, p = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) {
                m[i * n + j] = i == j ? 0 : f[p++];
                if (net->labels)
                    m[i * n + j] += net->items[t->sets->categorical[(at + i) * net->categories] * net->labels +
                                               t->sets->categorical[(at + j) * net->categories]];
            }
        double weight = t->sets->weight[batch[s]] / whole;
        const float *expansion = t->sets->log_expansion ? t->sets->log_expansion + at : NULL;
        losses[s] = n > 1 ? loss_of(net, step, n, m, t->u + r, expansion, t->du + r, t->work, chosen, weight) : 0;
        for (int64_t i = 0; i < n; i++) {
            if (fabsf(t->u[r + i]) >= MAX_UTILITY) t->du[r + i] = 0;
            for (int64_t j = 0; j < n; j++)
                if (i != j) *f++ = m[i * n + j];
        }
        r += n;
    }
}

/* Compute the losses of some sets from the factors f of their alternatives; in a step, overwrite f with gradients. */
INLINE void solve_factored_sets(Step *t, int step, const int64_t *batch, int64_t sets, int64_t r, double whole,
                                double *losses) {
    int64_t rank = t->net->rank, wide = padded(2 * rank);
    float *f = t->f;
    for (int64_t s = 0; s < sets; s++) {
        int64_t n = t->sets->counts[batch[s]], chosen = t->sets->chosen[batch[s]];
        float *u = t->u + r, *du = t->du + r;
        double weight = t->sets->weight[batch[s]] / whole;
        if (n > 1) losses[s] = factored_loss(step, n, rank, wide, f, u, du, t->work, chosen, weight);
        else memset(f, 0, sizeof(float) * (size_t)wide), losses[s] = 0;
        for (int64_t i = 0; i < n; i++)
            if (fabsf(u[i]) >= MAX_UTILITY) du[i] = 0;
        f += n * wide, r += n;
    }
}

/* Compute the gradients of the layers after the first, given the gradient dx of the outputs of layer k, before its
   activation, for P pairs or alternatives; return that of the first layer's outputs. ``dy`` is overwritten. */
INLINE float *pull_back_layers(Step *t, int64_t P, int64_t k, float *dx, float *dy) {
    const Network *net = t->net;
    for (; k > 0; k--) {
        int64_t wide = padded(width_of(net, k)), before = padded(net->width[k - 1]);
        for (int64_t p = 0; p < P; p++) add_row(wide, t->dbias[k], 1, dx + p * wide);
        multiply(ADD_TRANSPOSED, width_of(net, k), before, P, dx, wide, t->x[k - 1], t->dW[k], NULL, 0);
        multiply(BACK, P, before, width_of(net, k), dx, wide, t->W[k], dy, t->x[k - 1], (float)net->slope);
        float *swap = dx;
        dx = dy, dy = swap == t->f ? t->dy : swap; /* f has no room for a layer */
    }
    return dx;
}

/* Compute the gradients of the layers from those of the factors f of P alternatives, of which the first is in row r. */
INLINE void pull_back_factors(Step *t, int64_t P, int64_t r) {
    const float *dx = pull_back_layers(t, P, t->net->layers, t->f, t->dx);
    for (int64_t p = 0; p < P; p++) add_row(t->Hp, t->denter + (r + p) * t->Hp, 1, dx + p * t->Hp);
}

/* Compute the gradients of the layers, and of the parts of the first layer, from those of the scores f (P,). */
INLINE void pull_back(Step *t, const int64_t *batch, int64_t sets, int64_t r, int64_t P) {
    const Network *net = t->net;
    int64_t L = net->layers, last = L ? padded(net->width[L - 1]) : t->Hp;
    float slope = L ? (float)net->slope : 1, *dx = t->dx;
    for (int64_t p = 0; p < P; p++) {
        float df = t->f[p], *x = t->x[L ? L - 1 : 0] + p * last;
        if (L) add_row(last, t->dW[L], df, x), t->dbias[L][0] += df;
        for (int64_t h = 0; h < last; h += 8) {
            vec back = times(df, load(t->W[L] + h));
            put_leaky(dx + p * last + h, back, load(x + h), slope);
        }
    }
    dx = pull_back_layers(t, P, L - 1, dx, t->dy);
    for (int64_t s = 0; s < sets; s++) {
        int64_t n = t->sets->counts[batch[s]];
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) {
                if (i == j) continue;
                add_row(t->Hp, t->dleave + (r + i) * t->Hp, 1, dx);
                add_row(t->Hp, t->denter + (r + j) * t->Hp, 1, dx);
                dx += t->Hp;
            }
        r += n;
    }
}

/* Compute the gradient of a matrix (H, D) from its inputs (R, D) and the gradients of its outputs (R, H). */
INLINE void matrix_gradient(Step *t, int64_t R, int64_t D, const float *inputs, int64_t H, const float *rows, float *grad) {
    memset(t->sum, 0, sizeof(float) * (size_t)(D * padded(H)));
    multiply(ADD_TRANSPOSED, D, padded(H), R, inputs, padded(D), rows, t->sum, NULL, 0);
    unpack(t->sum, H, D, 1, grad);
}

/* Compute the gradients of the weights before the pairs from those of the first layer's parts and of utilities. */
INLINE void scatter(Step *t, const int64_t *batch, int64_t B, int64_t R) {
    const Network *net = t->net;
    for (int64_t s = 0, r = 0; s < B; s++)
        for (int64_t j = 0; j < t->sets->counts[batch[s]]; j++, r++) {
            const int64_t *code = t->sets->categorical + (t->sets->starts[batch[s]] + j) * net->categories;
            float du = t->du[r];
            add_row(t->Hp, t->dwho + s * t->Hp, 1, (net->rank ? t->denter : t->dleave) + r * t->Hp);
            add_row(t->Hp, t->dbias[0], 1, t->denter + r * t->Hp);
            if (!net->utility) continue;
            add_row(t->Dp, t->dtaste + s * t->Dp, du, t->S + r * t->Dp);
            add_row(t->Ep, t->dS + r * t->Ep, du, t->taste + s * t->Dp);
            for (int64_t k = 0; k < net->categories; k++)
                if (code[k]) t->grad[t->constants + k][code[k]] += du;
        }
    unpack(t->dbias[0], 1, t->H, 0, t->grad[t->first + 3]);
    if (!net->rank) matrix_gradient(t, R, t->D, t->S, t->H, t->dleave, t->grad[t->first + 1]);
    matrix_gradient(t, R, t->D, t->S, t->H, t->denter, t->grad[t->first + 2]);
    if (t->D0) matrix_gradient(t, B, t->D0, t->I, t->H, t->dwho, t->grad[t->first]);
    if (net->utility) {
        mask_clipped(t, B);
        memset(t->sum, 0, sizeof(float) * (size_t)t->Dp);
        for (int64_t s = 0; s < B; s++) add_row(t->Dp, t->sum, 1, t->dtaste + s * t->Dp);
        unpack(t->sum + t->E, 1, net->numbers, 0, t->grad[t->slopes]);
        unpack(t->sum, 1, t->D, 0, t->grad[t->slopes + 1]);
        if (t->D0) matrix_gradient(t, B, t->D0, t->I, t->D, t->dtaste, t->grad[t->slopes + 2]);
    }
    if (t->E && !net->rank) {
        pack(value(t, t->first + 1), t->D, t->H, t->E, 0, t->packed);
        multiply(ADD, R, t->Ep, t->H, t->dleave, t->Hp, t->packed, t->dS, NULL, 0);
    }
    if (t->E) {
        pack(value(t, t->first + 2), t->D, t->H, t->E, 0, t->packed);
        multiply(ADD, R, t->Ep, t->H, t->denter, t->Hp, t->packed, t->dS, NULL, 0);
    }
    if (t->E0) {
        pack(value(t, t->first), t->D0, t->H, t->E0, 0, t->packed);
        multiply(SET, B, t->E0p, t->H, t->dwho, t->Hp, t->packed, t->dI, NULL, 0);
        if (net->utility) {
            pack(value(t, t->slopes + 2), t->D0, t->D, t->E0, 0, t->packed);
            multiply(ADD, B, t->E0p, t->D, t->dtaste, t->Dp, t->packed, t->dI, NULL, 0);
        }
    }
    for (int64_t s = 0, r = 0; s < B; s++) {
        embed_gradient(t, 1, s, batch[s]);
        for (int64_t j = 0; j < t->sets->counts[batch[s]]; j++) embed_gradient(t, 0, r++, t->sets->starts[batch[s]] + j);
    }
}

/* Add the gradients of the priors; return the norm of all gradients. LANES separate sums allow vectorisation. */
INLINE double norm_of_gradients(Step *t) {
    double squares[LANES] = {0}, square = 0;
    for (int64_t k = 0; k < t->count; k++) {
        const Weight *w = t->weights + k;
        float *grad = t->grad[k], prior = w->prior;
        if (!w->moves) continue;
        if (prior)
            for (int64_t j = 0; j < w->size; j++) grad[j] += prior * w->value[j];
        for (int64_t j = 0; j < w->size; j += LANES) /* padded with zeros */
            for (int64_t h = 0; h < LANES; h++) squares[h] += (double)grad[j + h] * grad[j + h];
    }
    for (int h = 0; h < LANES; h++) square += squares[h];
    return sqrt(square);
}

/* Clip the gradients, take a step of Adam with decoupled decay, and project weights to their bounds; return the norm
   before clipping. */
INLINE double move(Step *t, const Optimiser *adam, double lr, int64_t steps) {
    double norm = norm_of_gradients(t), down = adam->clip / (norm + 1e-6);
    float scale = (float)(down < 1 ? down : 1);
    float rate = (float)(lr / (1 - pow(adam->beta1, (double)steps))), eps = (float)adam->eps;
    float unbiased = (float)(1 / sqrt(1 - pow(adam->beta2, (double)steps)));
    float b1 = (float)(1 - adam->beta1), b2 = (float)adam->beta2, c2 = (float)(1 - adam->beta2);
    for (int64_t k = 0; k < t->count; k++) {
        const Weight *w = t->weights + k;
        float *restrict value = w->value, *restrict mean = w->mean, *restrict square = w->square;
        const float *restrict grad = t->grad[k];
        float keep = (float)(1 - lr * w->decay);
        int64_t size = w->moves ? w->size : 0;
        for (int64_t j = 0; j < size; j++) {
            float g = scale * grad[j];
            mean[j] += b1 * (g - mean[j]);
            square[j] = b2 * square[j] + c2 * g * g;
            value[j] = keep * value[j] - rate * mean[j] / (unbiased * sqrtf(square[j]) + eps);
        }
        if (w->low)
            for (int64_t j = 0; j < size; j++)
                value[j] = value[j] < w->low[j] ? w->low[j] : value[j] > w->high[j] ? w->high[j] : value[j];
    }
    return norm;
}

/* -- steps ---------------------------------------------------------------------------------------------------- */

typedef struct { /* Memory that is allocated once and divided; without an address, only its size is measured. */
    char *address;
    size_t used;
} Arena;

static void *take(Arena *arena, int64_t count, size_t size) {
    void *piece = arena->address ? arena->address + arena->used : NULL;
    arena->used += ((size_t)count * size + 63) / 64 * 64;
    return piece;
}

/* Divide the memory of a step: up to B sets of up to n alternatives, R alternatives in all. */
static void lay_out(Step *t, Arena *a, int64_t B, int64_t R, int64_t n) {
    const Network *net = t->net;
    int64_t L = net->layers, outputs = width_of(net, L), widest = t->Hp, r = net->rank;
    int64_t P = r ? n : n * n, leaving = r ? 0 : R; /* pairs or alternatives of the largest set; rows of Wa S */
    if (P < PAIRS_PER_CHUNK) P = PAIRS_PER_CHUNK;
    size_t f = sizeof(float);
    for (int64_t k = 0; k < t->count; k++) t->grad[k] = take(a, t->weights[k].size, f);
    for (int64_t k = 0; k <= L; k++) {
        int64_t wide = width_of(net, k), before = k ? net->width[k - 1] : 0;
        t->dW[k] = take(a, wide * padded(before), f), t->dbias[k] = take(a, k ? padded(wide) : t->Hp, f);
    }
    t->dS = take(a, R * t->Ep, f), t->dleave = take(a, leaving * t->Hp, f), t->denter = take(a, R * t->Hp, f);
    t->dwho = take(a, B * t->Hp, f), t->dtaste = take(a, B * t->Dp, f), t->du = take(a, R, f);
    t->S = take(a, R * t->Dp, f), t->I = take(a, B * t->D0p, f), t->dI = take(a, B * t->E0p, f);
    t->leave = take(a, leaving * t->Hp, f), t->enter = take(a, R * t->Hp, f), t->who = take(a, B * t->Hp, f);
    t->taste = take(a, B * t->Dp, f), t->inside = take(a, B * t->Dp, f), t->u = take(a, R, f);
    for (int64_t k = 0; k <= L; k++) {
        int64_t wide = padded(width_of(net, k)), before = k ? net->width[k - 1] : 0;
        t->W[k] = take(a, k ? wide * padded(before) : t->Hp, f), t->Wt[k] = take(a, before * wide, f);
        t->bias[k] = take(a, k ? wide : t->Hp, f), t->x[k] = take(a, k < L || !k ? P * (k ? wide : t->Hp) : 0, f);
        if (wide > widest) widest = wide;
    }
    int64_t most = widest > t->Dp ? widest : t->Dp;
    most = most > t->D0p ? most : t->D0p;
    t->dx = take(a, P * widest, f), t->dy = take(a, P * widest, f), t->f = take(a, r ? P * padded(outputs) : P, f);
    t->matrix = take(a, r ? 0 : n * n, f);
    t->packed = take(a, most * most, f), t->sum = take(a, most * most, f);
    t->work = take(a, r ? factored_work(n, r) : 3 * n * n + 5 * n, sizeof(double)), t->losses = take(a, B, sizeof(double));
}

/* Pack the weights of the layers. */
INLINE void pack_layers(Step *t) {
    pack(value(t, t->first + 3), t->H, 1, t->H, 0, t->bias[0]);
    t->W[0][0] = 1; /* without hidden layers, the first layer's output is the score */
    for (int64_t k = 1; k <= t->net->layers; k++) {
        int64_t wide = width_of(t->net, k), before = t->net->width[k - 1];
        const float *w = value(t, t->later + 2 * (k - 1));
        pack(w, before, wide, before, 0, t->W[k]);
        pack(w, before, wide, before, 1, t->Wt[k]);
        pack(value(t, t->later + 2 * k - 1), wide, 1, wide, 0, t->bias[k]);
    }
}

INLINE void unpack_layers(Step *t) {
    for (int64_t k = 1; k <= t->net->layers; k++) {
        int64_t wide = width_of(t->net, k), before = t->net->width[k - 1];
        unpack(t->dW[k], wide, before, 0, t->grad[t->later + 2 * (k - 1)]);
        unpack(t->dbias[k], 1, wide, 0, t->grad[t->later + 2 * k - 1]);
    }
}

/* Score and solve the sets of a batch in chunks; in a step, also differentiate their mean loss. */
INLINE void pass(Step *t, int step, const int64_t *batch, int64_t B, double whole) {
    gather(t, batch, B);
    for (int64_t begin = 0, r = 0; begin < B;) {
        int64_t end = begin, pairs = 0, rows = 0;
        for (; end < B; end++) {
            int64_t n = t->sets->counts[batch[end]], more = t->net->rank ? n : n * (n - 1);
            if (end > begin && pairs + more > PAIRS_PER_CHUNK) break;
            pairs += more, rows += n;
        }
        if (t->net->rank) {
            score_factors(t, rows, r);
            solve_factored_sets(t, step, batch + begin, end - begin, r, whole, t->losses + begin);
            if (step) pull_back_factors(t, rows, r);
        } else {
            score(t, batch + begin, end - begin, r);
            solve_sets(t, step, batch + begin, end - begin, r, whole, t->losses + begin);
            if (step) pull_back(t, batch + begin, end - begin, r, pairs);
        }
        begin = end, r += rows;
    }
}

INLINE void step(Step *t, const Optimiser *adam, const int64_t *batch, int64_t B, double lr, int64_t steps, double *totals) {
    int64_t R = 0;
    double whole = 0;
    for (int64_t s = 0; s < B; s++) R += t->sets->counts[batch[s]], whole += t->sets->weight[batch[s]];
    memset(t->grad[0], 0, (size_t)((char *)t->S - (char *)t->grad[0])); /* all accumulated gradients are adjacent */
    pack_layers(t);
    pass(t, 1, batch, B, whole);
    unpack_layers(t);
    scatter(t, batch, B, R);
    for (int64_t s = 0; s < B; s++) totals[0] += t->sets->weight[batch[s]] * t->losses[s];
    totals[1] += whole, totals[2] += move(t, adam, lr, steps);
}

/* Return the version of this interface with the sizes of the structures, as one number. */
EXPORT int64_t pcmcnet_steps_layout(void) {
    int64_t sizes[] = {sizeof(Network), sizeof(Sets), sizeof(Weight), sizeof(Optimiser)}, layout = 6;
    for (int k = 0; k < 4; k++) layout = layout * 10000 + sizes[k];
    return layout;
}

/* Return a network with its weights, and memory for batches of B sets, R alternatives in all, up to n per set. */
static Step prepared(const Network *net, const Sets *sets, Weight *weights, int64_t count, int64_t B, int64_t R, int64_t n,
                     Arena *arena) {
    Step t = {.net = net, .sets = sets, .weights = weights, .count = count, .D = net->numbers, .D0 = net->own_numbers};
    for (int64_t k = 0; k < net->categories; k++) t.E += net->embedding[k];
    for (int64_t k = 0; k < net->own_categories; k++) t.E0 += net->own_embedding[k];
    t.D += t.E, t.D0 += t.E0, t.H = width_of(net, 0);
    t.Dp = padded(t.D), t.D0p = padded(t.D0), t.Ep = padded(t.E), t.E0p = padded(t.E0), t.Hp = padded(t.H);
    t.own = net->categories, t.first = t.own + net->own_categories, t.later = t.first + 4;
    t.constants = t.later + 2 * net->layers, t.slopes = t.constants + net->categories;
    lay_out(&t, arena, B, R, n);
    arena->address = allocate(arena->used);
    if (!arena->address) return t;
    memset(arena->address, 0, arena->used);
    arena->used = 0;
    lay_out(&t, arena, B, R, n);
    return t;
}

/* Take a step for each batch k, with the sets order[ends[k - 1] .. ends[k]]. Return 0, or 1 if memory is insufficient.
   Add the sums of weighted losses, of weights and of the norms of gradients to ``totals``. */
FOR_EACH_PROCESSOR
EXPORT int pcmcnet_steps(const Network *net, const Sets *sets, Weight *weights, int64_t count, const Optimiser *adam,
                  const int64_t *order, const int64_t *ends, const double *rates, int64_t batches, double *totals) {
    int64_t B = 0, R = 0, n = 0;
    for (int64_t k = 0, at = 0; k < batches; at = ends[k++]) {
        int64_t rows = 0;
        for (int64_t s = at; s < ends[k]; s++) {
            int64_t size = sets->counts[order[s]];
            rows += size, n = size > n ? size : n;
        }
        B = ends[k] - at > B ? ends[k] - at : B, R = rows > R ? rows : R;
    }
    Arena arena = {NULL, 0};
    Step t = prepared(net, sets, weights, count, B, R, n, &arena);
    if (!arena.address) return 1;
    for (int64_t k = 0, at = 0; k < batches; at = ends[k++])
        step(&t, adam, order + at, ends[k] - at, rates[k], adam->taken + k + 1, totals);
    release(arena.address);
    return 0;
}

/* Compute the losses of the sets at some positions. Return 0, or 1 if memory is insufficient. */
FOR_EACH_PROCESSOR
EXPORT int pcmcnet_losses(const Network *net, const Sets *sets, Weight *weights, int64_t count, const int64_t *order, int64_t many,
                   double *losses) {
    int64_t n = 0;
    for (int64_t s = 0; s < many; s++) n = sets->counts[order[s]] > n ? sets->counts[order[s]] : n;
    Arena arena = {NULL, 0};
    Step t = prepared(net, sets, weights, count, SETS_PER_PASS, SETS_PER_PASS * n, n, &arena);
    if (!arena.address) return 1;
    pack_layers(&t);
    for (int64_t s = 0; s < many; s += SETS_PER_PASS) {
        int64_t B = many - s < SETS_PER_PASS ? many - s : SETS_PER_PASS;
        pass(&t, 0, order + s, B, 1);
        memcpy(losses + s, t.losses, sizeof(double) * (size_t)B);
    }
    release(arena.address);
    return 0;
}
