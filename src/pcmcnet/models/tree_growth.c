/* Growth of a regression tree on binned inputs: see tree_growth.py, which has the same steps in numpy.

Sums run over the rows in their order and in double precision, as in numpy, so both give the same tree. Inputs are stored
by column: the bin of input k in row i is bins[k * N + i]. The values of leaves may have to rise or fall with some inputs:
see tree_growth.py.
*/
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT
#endif

#define BINS 256

typedef struct {
    int64_t begin, end; /* rows of the node, in ``order`` */
    double low, high;   /* bounds of the values of all leaves below it */
    double gain;        /* of its best split; 0 if there is none */
    int64_t feature, cut;
    double between;     /* midpoint of the values of the two parts of its best split */
} Node;

typedef struct {
    double g[BINS], h[BINS];
    int64_t rows[BINS];
} Histogram;

typedef struct { /* The data, and the options of the tree. */
    const uint8_t *bins;
    int64_t N;
    const double *g, *h;
    const int8_t *signs;  /* (K,) 1 or -1 if the values rise or fall with the input, else 0 */
    const int64_t *drawn; /* (nodes, m) inputs that each node may split on */
    int64_t m, min_rows;
    double l2;
    int32_t *order, *moved;
    Histogram *sums;
} Growth;

/* Return the value within bounds that maximises 2 g v - h v^2, and set ``score`` to this maximum. */
static double best_value(double g, double h, double low, double high, double *score) {
    double free = g / h, value = free < low ? low : free > high ? high : free;
    if (value == free) {
        *score = g * g / h;
    } else {
        volatile double product = h * value; /* a fused product and sum would differ from numpy */
        *score = value * (2 * g - product);
    }
    return value;
}

/* Find the best split of node number k. */
static void find_split(const Growth *t, Node *node, int64_t k) {
    node->gain = 0;
    for (int64_t d = 0; d < t->m; d++) {
        /* 1. Sum gradients and Hessians of the rows in each bin. */
        int64_t feature = t->drawn[k * t->m + d], rows = 0;
        const uint8_t *bin = t->bins + feature * t->N;
        Histogram *sums = t->sums;
        memset(sums, 0, sizeof(*sums));
        for (int64_t i = node->begin; i < node->end; i++) {
            int32_t row = t->order[i];
            sums->g[bin[row]] += t->g[row];
            sums->h[bin[row]] += t->h[row];
            sums->rows[bin[row]]++;
        }
        /* 2. Try every cut between two bins. */
        double G = 0, H = 0, left_g = 0, left_h = 0;
        for (int b = 0; b < BINS; b++) G += sums->g[b], H += sums->h[b];
        double whole, of_left, of_right;
        best_value(G, H + t->l2, node->low, node->high, &whole);
        int sign = t->signs[feature];
        for (int b = 0; b < BINS - 1; b++) {
            left_g += sums->g[b], left_h += sums->h[b], rows += sums->rows[b];
            if (rows < t->min_rows || node->end - node->begin - rows < t->min_rows) continue;
            if (left_h + t->l2 <= 0 || H - left_h + t->l2 <= 0) continue;
            double left = best_value(left_g, left_h + t->l2, node->low, node->high, &of_left);
            double right = best_value(G - left_g, H - left_h + t->l2, node->low, node->high, &of_right);
            double gain = of_left + of_right - whole;
            if (gain > node->gain && sign * (right - left) >= 0) {
                node->gain = gain, node->feature = feature, node->cut = b, node->between = (left + right) / 2;
            }
        }
    }
}

/* Move the rows of a node that go left before the others, each in their order; return the end of the left rows. */
static int64_t divide(const Growth *t, const Node *node) {
    const uint8_t *bin = t->bins + node->feature * t->N;
    int64_t left = node->begin, right = 0;
    for (int64_t i = node->begin; i < node->end; i++) {
        int32_t row = t->order[i];
        if (bin[row] <= node->cut) t->order[left++] = row;
        else t->moved[right++] = row;
    }
    memcpy(t->order + left, t->moved, sizeof(int32_t) * (size_t)right);
    return left;
}

/* Grow a tree of up to ``leaves`` leaves on n of the N rows: split the leaf with the largest gain until no split gains
   anything. Write feature (-1 for a leaf), cut, left, right, gain, and the bounds of the values of each node; return the
   number of nodes, or -1 if there is not enough memory. */
EXPORT int64_t pcmcnet_grow_tree(const uint8_t *bins, int64_t N, const int32_t *rows, int64_t n, const double *g, const double *h,
                          const int8_t *signs, const int64_t *drawn, int64_t m, int64_t leaves, int64_t min_rows,
                          double l2, int64_t *feature, int64_t *cut, int64_t *left, int64_t *right, double *gain,
                          double *low, double *high) {
    Node *nodes = malloc(sizeof(Node) * (size_t)(2 * leaves));
    int32_t *order = malloc(sizeof(int32_t) * (size_t)(n + 1)), *moved = malloc(sizeof(int32_t) * (size_t)(n + 1));
    Histogram *sums = malloc(sizeof(Histogram));
    int64_t count = -1;
    if (nodes && order && moved && sums) {
        Growth t = {bins, N, g, h, signs, drawn, m, min_rows, l2, order, moved, sums};
        memcpy(order, rows, sizeof(int32_t) * (size_t)n);
        nodes[0] = (Node){.begin = 0, .end = n, .low = -INFINITY, .high = INFINITY};
        find_split(&t, nodes, 0);
        feature[0] = -1, count = 1;
        while (count < 2 * leaves - 1) {
            int64_t best = -1;
            for (int64_t k = 0; k < count; k++)
                if (feature[k] < 0 && nodes[k].gain > (best < 0 ? 0 : nodes[best].gain)) best = k;
            if (best < 0) break;
            Node *node = nodes + best;
            int64_t middle = divide(&t, node);
            feature[best] = node->feature, cut[best] = node->cut, gain[best] = node->gain;
            left[best] = count, right[best] = count + 1;
            nodes[count] = (Node){.begin = node->begin, .end = middle, .low = node->low, .high = node->high};
            nodes[count + 1] = (Node){.begin = middle, .end = node->end, .low = node->low, .high = node->high};
            /* All values on one side of a split on a signed input are at most, and all others at least, ``between``. */
            int sign = signs[node->feature];
            if (sign > 0) nodes[count].high = nodes[count + 1].low = node->between;
            if (sign < 0) nodes[count].low = nodes[count + 1].high = node->between;
            for (int64_t child = count; child < count + 2; child++) {
                feature[child] = -1;
                find_split(&t, nodes + child, child);
            }
            count += 2;
        }
        for (int64_t k = 0; k < count; k++) low[k] = nodes[k].low, high[k] = nodes[k].high;
    }
    free(nodes), free(order), free(moved), free(sums);
    return count;
}

/* Return the version of this interface. */
EXPORT int64_t pcmcnet_trees_version(void) { return 2; }

/* Find the leaf of each row of binned inputs. */
EXPORT void pcmcnet_find_leaves(const uint8_t *bins, int64_t N, const int64_t *feature, const int64_t *cut, const int64_t *left,
                         const int64_t *right, int64_t *leaf) {
    for (int64_t i = 0; i < N; i++) {
        int64_t node = 0;
        while (feature[node] >= 0) node = bins[feature[node] * N + i] <= cut[node] ? left[node] : right[node];
        leaf[i] = node;
    }
}

/* Add the values of the leaves that rows x (N, K) reach in each tree to their utilities. */
EXPORT void pcmcnet_sum_trees(const float *x, int64_t N, int64_t K, const int64_t *roots, int64_t trees, const int64_t *feature,
                       const double *threshold, const int64_t *left, const int64_t *right, const double *value,
                       double *utility) {
    for (int64_t i = 0; i < N; i++)
        for (int64_t t = 0; t < trees; t++) {
            int64_t node = roots[t];
            while (feature[node] >= 0)
                node = (double)x[i * K + feature[node]] <= threshold[node] ? left[node] : right[node];
            utility[i] += value[node];
        }
}
