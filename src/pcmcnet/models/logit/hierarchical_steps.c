/* Part-worths of persons and their densities, for the sampler of the hierarchical logit: see person_posterior.py, which
   has the same steps in numpy.

   Arrays have the persons last, and their number is a multiple of LANES. A vector holds the numbers of several persons,
   which are computed together. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LANES 16             /* persons of a tile, as in Python */
#define MAX_UTILITY 80.0f    /* of a difference: exp() of a larger one overflows in float32 */
#define MIN_EXPONENT -87.0f  /* exp() of a smaller number is not normal in float32 */
#define MAX_EXPONENT 88.0f
#define MAX_LOGARITHM 30.0f  /* of a coefficient of constrained sign: the choice is then certain */
#define MIN_PIVOT 1e-20f     /* of a factor: rounding may make a pivot negative */

/* Versions of a function for newer processors, one of which is selected when the library is loaded. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && __GNUC__ >= 12
#define FOR_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v3", "default")))
#define CLONES
#else
#define FOR_EACH_PROCESSOR
#endif

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT
#endif

/* -- vectors: 8 numbers if the processor may have AVX, else 4; single numbers with MSVC ---------------------------- */

#ifdef _MSC_VER
#define INLINE static __forceinline
#define WIDTH 1
typedef float vec;
typedef int32_t bits;
INLINE bits bits_of(vec x) { bits i; memcpy(&i, &x, sizeof i); return i; }
INLINE vec of_bits(bits i) { vec x; memcpy(&x, &i, sizeof x); return x; }
INLINE bits to_integer(vec x) { return (bits)x; }
INLINE vec to_float(bits i) { return (vec)i; }
INLINE vec choose(vec a, vec b, vec yes, vec no) { return a > b ? yes : no; } /* yes if a > b */
INLINE vec root(vec x) { return sqrtf(x); }
INLINE vec load(const float *from) { return *from; }
INLINE void store(float *to, vec x) { *to = x; }
INLINE vec all(float x) { return x; }
#else
#define INLINE static inline __attribute__((always_inline))
#if defined(__AVX__) || defined(CLONES)
#define WIDTH 8
#else
#define WIDTH 4
#endif
typedef float vec __attribute__((vector_size(4 * WIDTH)));
typedef float unaligned __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef int32_t bits __attribute__((vector_size(4 * WIDTH)));
INLINE bits bits_of(vec x) { return (bits)x; }
INLINE vec of_bits(bits i) { return (vec)i; }
INLINE bits to_integer(vec x) { return __builtin_convertvector(x, bits); }
INLINE vec to_float(bits i) { return __builtin_convertvector(i, vec); }
INLINE vec choose(vec a, vec b, vec yes, vec no) { /* yes if a > b */
    bits mask = (bits)(a > b);
    return (vec)((mask & (bits)yes) | (~mask & (bits)no));
}
INLINE vec root(vec x) {
    for (int l = 0; l < WIDTH; l++) x[l] = sqrtf(x[l]);
    return x;
}
INLINE vec load(const float *from) { return *(const unaligned *)from; }
INLINE void store(float *to, vec x) { *(unaligned *)to = x; }
INLINE vec all(float x) { return x - (vec){0}; }
#endif

/* Return exp(x) with a relative error of 1e-7 (Cephes). */
INLINE vec exponential(vec x) {
    x = choose(x, all(MIN_EXPONENT), x, all(MIN_EXPONENT));
    x = choose(x, all(MAX_EXPONENT), all(MAX_EXPONENT), x);
    vec n = (x * 1.44269504f + 12582912.0f) - 12582912.0f; /* rounded to an integer */
    vec r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * of_bits((to_integer(n) + 127) << 23);
}

/* Return log(x) with an error of 1e-7, for normal positive numbers (Cephes). */
INLINE vec logarithm(vec x) {
    bits i = bits_of(x);
    vec e = to_float((i >> 23) - 127), m = of_bits((i & 0x7fffff) | 0x3f800000);
    vec above = choose(m, all(1.41421356f), all(1.0f), all(0.0f));
    m = m * (1.0f - 0.5f * above) - 1.0f;
    e = e + above;
    vec square = m * m, p = m * 7.0376836292e-2f - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    return m + (p * m * square - 0.5f * square) + e * 0.693147182f;
}

/* -- persons ------------------------------------------------------------------------------------------------------- */

typedef struct {          /* P persons, padded, with K part-worths; C chains. */
    int64_t K, C, P;
    int64_t begin, tiles; /* first person of this group, and its number of tiles of LANES persons */
    int64_t sets;         /* of each person of the group */
    int64_t widest;       /* largest number of alternatives of a set that were not chosen */
    const int64_t *rows;  /* (sets,) alternatives that were not chosen */
    const float *z;       /* (tiles, sum of rows, K + 1, LANES): utility of padding, then differences */
    const float *signs;   /* (K,) 0 for a normal part-worth, else 1 or -1: sign times exp(b) */
    const float *hessian; /* (K (K + 1) / 2, P) lower triangles of the approximate likelihood */
    const float *linear;  /* (K, P) */
} Group;

typedef struct { /* Present values of one chain. */
    float *u, *b;          /* (K, P) */
    float *ll, *prior;     /* (P,) log-likelihood, and -(b - mean)' precision (b - mean) / 2 */
    float *log_determinant; /* (P,) of R */
} Values;

typedef struct { /* Derivatives in the population of one chain. */
    const float *weights; /* (P,) of the persons */
    float *mean;          /* (K, P) of one person */
    float *precision;     /* (K (K + 1) / 2, LANES) sums over the persons of each lane */
} Slopes;

INLINE const vec *row(const vec *triangle, int64_t i) { return triangle + i * (i + 1) / 2; }

/* Factor the precision: R R' = hessian + precision. The diagonal of R is stored inverted. Return log |R|. */
INLINE vec factor(const Group *g, int64_t at, const float *precision, vec *R) {
    int64_t K = g->K;
    const float *hessian = g->hessian + at;
    vec log_determinant = all(0.0f);
    for (int64_t i = 0; i < K; i++) {
        vec *of_i = R + i * (i + 1) / 2;
        for (int64_t j = 0; j <= i; j++, hessian += g->P) {
            const vec *of_j = row(R, j);
            vec sum = load(hessian) + precision[i * K + j];
            for (int64_t k = 0; k < j; k++) sum -= of_i[k] * of_j[k];
            if (j < i) {
                of_i[j] = sum * of_j[j];
            } else {
                sum = choose(sum, all(MIN_PIVOT), sum, all(MIN_PIVOT));
                of_i[j] = 1.0f / root(sum);
                log_determinant += 0.5f * logarithm(sum);
            }
        }
    }
    return log_determinant;
}

/* Solve R w = linear + precision mean. */
INLINE void solve_mean(const Group *g, int64_t at, const float *precision, const float *mean, const vec *R, vec *w) {
    int64_t K = g->K;
    for (int64_t i = 0; i < K; i++) {
        vec sum = load(g->linear + i * g->P + at);
        for (int64_t k = 0; k < K; k++) sum += precision[i * K + k] * load(mean + k * g->P + at);
        for (int64_t k = 0; k < i; k++) sum -= row(R, i)[k] * w[k];
        w[i] = sum * row(R, i)[i];
    }
}

/* Return the log-likelihood of the choices of some persons with coefficients c (K,). Add minus its gradient to
   ``minus`` (K,), unless that is NULL; e has place for the alternatives of a set. */
INLINE vec log_likelihood(const Group *g, const float *z, const vec *c, vec *e, vec *minus) {
    int64_t K = g->K, step = (K + 1) * LANES;
    vec value = all(0.0f);
    for (int64_t s = 0; s < g->sets; s++) {
        int64_t rows = g->rows[s];
        vec total = all(1.0f);
        for (int64_t r = 0; r < rows; r++) {
            const float *x = z + r * step;
            vec v = load(x);
            for (int64_t k = 0; k < K; k++) v += load(x + (k + 1) * LANES) * c[k];
            e[r] = exponential(choose(v, all(MAX_UTILITY), all(MAX_UTILITY), v));
            total += e[r];
        }
        value -= logarithm(total);
        if (minus) {
            vec share = 1.0f / total;
            for (int64_t r = 0; r < rows; r++) {
                vec p = e[r] * share;
                for (int64_t k = 0; k < K; k++) minus[k] += p * load(z + r * step + (k + 1) * LANES);
            }
        }
        z += rows * step;
    }
    return value;
}

/* Compute the derivatives of ll + prior - log |R| in the mean and the precision, with u fixed, from the derivatives t
   of ll in b and from d = b - mean. With W = R^-1 and v = W (t - precision d), they are

       in the mean           precision (s + d)                                     s = W' v
       in the precision      s mean' - s (W' w)' - W' (I / 2 + lower(u v')) W - d d' / 2, made symmetric

   where lower() halves the diagonal. */
INLINE void add_slopes(const Group *g, int64_t at, const float *precision, const float *mean, const vec *R, const vec *w,
                       const float *u, const vec *t, const vec *d, const Slopes *to, vec *memory) {
    int64_t K = g->K, P = g->P;
    vec *W = memory, *v = W + K * (K + 1) / 2, *s = v + K, *m = s + K, *a = m + K, *f = a + K;
    vec weight = load(to->weights + at);
    /* 1. The inverse of R. */
    for (int64_t i = 0; i < K; i++) {
        vec *of_i = W + i * (i + 1) / 2;
        for (int64_t j = 0; j < i; j++) {
            vec sum = row(R, i)[j] * row(W, j)[j];
            for (int64_t k = j + 1; k < i; k++) sum += row(R, i)[k] * row(W, k)[j];
            of_i[j] = -sum * row(R, i)[i];
        }
        of_i[i] = row(R, i)[i];
    }
    /* 2. v, s, and the mean minus W' w. */
    for (int64_t i = 0; i < K; i++) {
        f[i] = t[i];
        for (int64_t j = 0; j < K; j++) f[i] -= precision[i * K + j] * d[j];
    }
    for (int64_t i = 0; i < K; i++) {
        v[i] = all(0.0f);
        for (int64_t j = 0; j <= i; j++) v[i] += row(W, i)[j] * f[j];
    }
    for (int64_t j = 0; j < K; j++) {
        s[j] = a[j] = all(0.0f);
        m[j] = load(mean + j * P + at);
        for (int64_t i = j; i < K; i++) {
            s[j] += row(W, i)[j] * v[i];
            m[j] -= row(W, i)[j] * w[i];
        }
    }
    /* 3. The mean. */
    for (int64_t i = 0; i < K; i++) {
        vec sum = all(0.0f);
        for (int64_t j = 0; j < K; j++) sum += precision[i * K + j] * (s[j] + d[j]);
        store(to->mean + i * P + at, sum);
    }
    /* 4. The precision: the first terms, then the rows of W one by one. */
    float *sums = to->precision + at % LANES;
    for (int64_t i = 0, q = 0; i < K; i++)
        for (int64_t j = 0; j <= i; j++, q += LANES)
            store(sums + q, load(sums + q) + 0.5f * weight * (s[i] * m[j] + s[j] * m[i] - d[i] * d[j]));
    for (int64_t r = 0; r < K; r++) {
        const vec *of_r = row(W, r);
        vec size = load(u + r * P + at);
        for (int64_t j = 0; j <= r; j++) {
            vec half = 0.5f * v[r] * of_r[j];
            f[j] = 0.5f * weight * (size * (a[j] + half) + 0.5f * of_r[j]);
            a[j] += 2.0f * half;
        }
        float *sum = sums;
        for (int64_t i = 0; i <= r; i++)
            for (int64_t j = 0; j <= i; j++, sum += LANES) store(sum, load(sum) - (of_r[i] * f[j] + of_r[j] * f[i]));
    }
}

/* Compute the values of WIDTH persons of one chain, the first of which is ``at``, with choices z, and derivatives unless
   ``slopes`` is NULL. */
INLINE void evaluate(const Group *g, int64_t at, const float *z, int64_t keeps_b, const float *precision,
                     const float *mean, const Values *x, const Slopes *slopes, vec *memory) {
    int64_t K = g->K, P = g->P;
    vec *R = memory, *w = R + K * (K + 1) / 2, *b = w + K, *c = b + K, *t = c + K, *e = t + K;
    /* 1. The normal approximation of the posterior given the population: mean and factor of the precision. */
    store(x->log_determinant + at, factor(g, at, precision, R));
    solve_mean(g, at, precision, mean, R, w);
    if (keeps_b) {
        /* 2a. Standardised part-worths: u = R' b - w. */
        for (int64_t j = 0; j < K; j++) b[j] = load(x->b + j * P + at);
        for (int64_t j = 0; j < K; j++) {
            vec sum = b[j] / row(R, j)[j] - w[j];
            for (int64_t i = j + 1; i < K; i++) sum += row(R, i)[j] * b[i];
            store(x->u + j * P + at, sum);
        }
    } else {
        /* 2b. Part-worths: R' b = w + u; then the likelihood. */
        for (int64_t j = K - 1; j >= 0; j--) {
            vec sum = w[j] + load(x->u + j * P + at);
            for (int64_t i = j + 1; i < K; i++) sum -= row(R, i)[j] * b[i];
            b[j] = sum * row(R, j)[j];
            store(x->b + j * P + at, b[j]);
            vec logarithm_of_size = choose(b[j], all(MAX_LOGARITHM), all(MAX_LOGARITHM), b[j]);
            c[j] = g->signs[j] == 0 ? b[j] : g->signs[j] * exponential(logarithm_of_size);
        }
        for (int64_t k = 0; k < K; k++) t[k] = all(0.0f);
        store(x->ll + at, log_likelihood(g, z, c, e, slopes ? t : NULL));
        for (int64_t k = 0; k < K; k++) t[k] *= g->signs[k] == 0 ? all(-1.0f) : -c[k];
    }
    /* 3. The normal density of the population, without its constant. */
    vec density = all(0.0f);
    for (int64_t k = 0; k < K; k++) c[k] = b[k] - load(mean + k * P + at);
    for (int64_t i = 0; i < K; i++) {
        vec sum = 0.5f * precision[i * K + i] * c[i];
        for (int64_t j = 0; j < i; j++) sum += precision[i * K + j] * c[j];
        density -= sum * c[i];
    }
    store(x->prior + at, density);
    if (slopes) add_slopes(g, at, precision, mean, R, w, x->u, t, c, slopes, e + g->widest);
}

INLINE const float *choices_of(const Group *g, int64_t tile) {
    int64_t rows = 0;
    for (int64_t s = 0; s < g->sets; s++) rows += g->rows[s];
    return g->z + tile * rows * (g->K + 1) * LANES;
}

/* -- steps --------------------------------------------------------------------------------------------------------- */

FOR_EACH_PROCESSOR
static void all_persons(const Group *g, int64_t keeps_b, const float *precision, const float *mean, const Values *first,
                        const Slopes *slopes, vec *memory) {
    int64_t K = g->K, P = g->P;
    for (int64_t tile = 0; tile < g->tiles; tile++) {
        const float *z = choices_of(g, tile);
        for (int64_t chain = 0; chain < g->C; chain++) /* the chains share the data, which stay in the cache */
            for (int64_t l = 0; l < LANES; l += WIDTH) {
                Values x = {first->u + chain * K * P, first->b + chain * K * P, first->ll + chain * P,
                            first->prior + chain * P, first->log_determinant + chain * P};
                int64_t at = g->begin + tile * LANES + l;
                const float *its_precision = precision + chain * K * K, *its_mean = mean + chain * K * P;
                if (slopes) {
                    Slopes own = {slopes->weights, slopes->mean + chain * K * P,
                                  slopes->precision + chain * K * (K + 1) / 2 * LANES};
                    evaluate(g, at, z + l, 0, its_precision, its_mean, &x, &own, memory);
                } else {
                    evaluate(g, at, z + l, keeps_b, its_precision, its_mean, &x, NULL, memory);
                }
            }
    }
}

/* Accept or reject the proposals ``new`` of WIDTH persons, which replace the values ``old``. */
INLINE void accept(int64_t K, int64_t P, int64_t at, const float *threshold, const Values *new, const Values *old,
                   float *accepted) {
    vec gain = load(new->ll + at) + load(new->prior + at) - load(old->ll + at) - load(old->prior + at);
    for (int64_t k = 0; k < K; k++) {
        vec v = load(new->u + k * P + at), u = load(old->u + k * P + at);
        gain += 0.5f * (v * v - u * u);
    }
    vec limit = load(threshold + at); /* a gain that is NaN is not larger */
    for (int64_t k = 0; k < K; k++) {
        int64_t i = k * P + at;
        store(old->u + i, choose(gain, limit, load(new->u + i), load(old->u + i)));
        store(old->b + i, choose(gain, limit, load(new->b + i), load(old->b + i)));
    }
    store(old->ll + at, choose(gain, limit, load(new->ll + at), load(old->ll + at)));
    store(old->prior + at, choose(gain, limit, load(new->prior + at), load(old->prior + at)));
    store(accepted + at, load(accepted + at) + choose(gain, limit, all(1.0f), all(0.0f)));
}

FOR_EACH_PROCESSOR
static void move_persons(const Group *g, const float *precision, const float *mean, const float *step, float *noise,
                         const float *threshold, const Values *first, float *accepted, const Values *proposal,
                         vec *memory) {
    int64_t K = g->K, P = g->P;
    for (int64_t tile = 0; tile < g->tiles; tile++) {
        const float *z = choices_of(g, tile);
        for (int64_t chain = 0; chain < g->C; chain++)
            for (int64_t l = 0; l < LANES; l += WIDTH) {
                int64_t at = g->begin + tile * LANES + l;
                Values old = {first->u + chain * K * P, first->b + chain * K * P, first->ll + chain * P,
                              first->prior + chain * P, NULL};
                Values new = *proposal;
                new.u = noise + chain * K * P;
                /* 1. Propose sqrt(1 - step^2) u + step v, with v standard normal. */
                vec size = load(step + at), keep = root(1.0f - size * size);
                for (int64_t k = 0; k < K; k++) {
                    int64_t i = k * P + at;
                    store(new.u + i, keep * load(old.u + i) + size * load(new.u + i));
                }
                evaluate(g, at, z + l, 0, precision + chain * K * K, mean + chain * K * P, &new, NULL, memory);
                /* 2. Accept by the density relative to a standard normal. */
                accept(K, P, at, threshold + chain * P, &new, &old, accepted);
            }
    }
}

static vec *allocate(const Group *g, void **start) { /* aligned */
    int64_t K = g->K;
    size_t size = sizeof(vec) * (size_t)(K * (K + 1) + 9 * K + g->widest);
    *start = malloc(size + 64);
    return *start ? (vec *)(((uintptr_t)*start + 63) & ~(uintptr_t)63) : NULL;
}

/* Compute the part-worths b from u, or u from b if keeps_b. Return 1 if there is no memory. Arrays: u, b, mean (C, K, P);
   ll, prior, log_determinant (C, P); precision (C, K, K).

   Unless ``weights`` (P,) is NULL, also compute the derivatives of ll + prior - log_determinant with u fixed: of each
   person in the mean (C, K, P), and weighted sums in the precision, added to (C, K (K + 1) / 2, LANES). */
EXPORT int64_t pcmcnet_part_worths(const Group *g, int64_t keeps_b, const float *precision, const float *mean, float *u,
                                   float *b, float *ll, float *prior, float *log_determinant, const float *weights,
                                   float *mean_slopes, float *precision_slopes) {
    void *start;
    vec *memory = allocate(g, &start);
    if (!memory) return 1;
    Values x = {u, b, ll, prior, log_determinant};
    Slopes slopes = {weights, mean_slopes, precision_slopes};
    all_persons(g, keeps_b, precision, mean, &x, weights ? &slopes : NULL, memory);
    free(start);
    return 0;
}

/* Move each person by one Metropolis step given the population. ``noise`` holds standard normal draws (C, K, P), which
   are overwritten, ``threshold`` logarithms of uniform draws (C, P), and ``step`` the sizes of the steps (P,), up to 1.
   ``accepted`` (P,) counts accepted steps. Return 1 if there is no memory. */
EXPORT int64_t pcmcnet_move_persons(const Group *g, const float *precision, const float *mean, const float *step,
                                    float *noise, const float *threshold, float *u, float *b, float *ll, float *prior,
                                    float *accepted) {
    int64_t K = g->K, P = g->P;
    void *start;
    vec *memory = allocate(g, &start);
    float *proposed = malloc(sizeof(float) * (size_t)(K * P + 3 * P));
    if (memory && proposed) {
        Values x = {u, b, ll, prior, NULL};
        Values proposal = {NULL, proposed, proposed + K * P, proposed + K * P + P, proposed + K * P + 2 * P};
        move_persons(g, precision, mean, step, noise, threshold, &x, accepted, &proposal, memory);
    }
    int64_t failed = !memory || !proposed;
    free(start);
    free(proposed);
    return failed;
}

EXPORT int64_t pcmcnet_hierarchical_version(void) { return 2; }
