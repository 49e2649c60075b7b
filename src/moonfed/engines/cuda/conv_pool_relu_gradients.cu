// Gradients of the operation in conv_pool_relu.cu, behind which this is compiled.

#define NUMBERS (OUT * IN * TAPS + OUT)  // weights and biases
#define CHUNKS ((PAIRS + PAIRS_PER_BLOCK - 1) / PAIRS_PER_BLOCK)  // of a row
#define BAND_WIDTH (4 * PAIRS_PER_BLOCK + KERNEL - 1)  // the inputs of a chunk are PATCH_HEIGHT rows of this width
#define AT_ONCE (BATCH % 4 ? 1 : 4)  // images that are copied at once

// Copies the inputs of a chunk of windows of one channel: x points to the channel's first number.
__device__ inline void load_band(float* band, const float* x, int row, int chunk, int first_image, int threads) {
    const int per_place = IMAGES / AT_ONCE;
#pragma unroll 4
    for (int i = threadIdx.x; i < PATCH_HEIGHT * BAND_WIDTH * per_place; i += threads) {
        int image = first_image + i % per_place * AT_ONCE;
        int z = chunk * PAIRS_PER_BLOCK * 4 - PAD + i / per_place % BAND_WIDTH, y = 2 * row - PAD + i / per_place / BAND_WIDTH;
        bool within = y >= 0 && y < HEIGHT && z >= 0 && z < WIDTH && image < BATCH;
        const float* from = x + (y * WIDTH + z) * BATCH + image;
        if (AT_ONCE == 4)
            ((float4*)band)[i] = within ? *(const float4*)from : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        else
            band[i] = within ? *from : 0.0f;
    }
}

// The inputs of two windows of one image in a band.
__device__ inline void patch_of_band(float patch[PATCH_HEIGHT][PATCH_WIDTH], const float* band, int pair, int image) {
#pragma unroll
    for (int i = 0; i < PATCH_HEIGHT; i++)
#pragma unroll
        for (int j = 0; j < PATCH_WIDTH; j++) patch[i][j] = band[(i * BAND_WIDTH + 4 * pair + j) * IMAGES + image];
}

#define GROUPS ((OUT + GRAD_OUT_PER_THREAD - 1) / GRAD_OUT_PER_THREAD)  // of output channels: one warp each
#define PER_WARP (32 / IMAGES)  // pairs of windows that a warp computes at once
#define ROUNDS ((PAIRS_PER_BLOCK + PER_WARP - 1) / PER_WARP)  // of a chunk

// The gradients of a pair of windows for GRAD_OUT_PER_THREAD output channels, and who wins them.
struct PairGradients {
    float own[GRAD_OUT_PER_THREAD][2];
    int at[GRAD_OUT_PER_THREAD][2];
};

__device__ inline void load_gradients(
    PairGradients* to, const float* grad, const unsigned char* winner, int first, int row, int column, bool valid) {
#pragma unroll
    for (int o = 0; o < GRAD_OUT_PER_THREAD; o++)
#pragma unroll
        for (int second = 0; second < 2; second++) {
            bool there = valid && first + o < OUT && column + second < POOLED_WIDTH;
            int from = (o * POSITIONS + row * POOLED_WIDTH + column + second) * BATCH;
            to->own[o][second] = there ? grad[from] : 0.0f;
            to->at[o][second] = there ? winner[from] : NONE;
        }
}

// Gradients of weights and bias. Blocks: (split and tile of images, input channel, lane) of GROUPS warps. Each split
// sums a part of the windows: parts are [lane, split and tile, numbers], first those of weights, [out, in, tap].
extern "C" __global__ void __launch_bounds__(32 * GROUPS) weight_gradient(
    const float* x, const float* grad, const unsigned char* winner, float* parts) {
    __shared__ __align__(16) float band[PATCH_HEIGHT * BAND_WIDTH * IMAGES];
    __shared__ float sums[GROUPS][TAPS + 1][33];
    int lane = blockIdx.z, channel = blockIdx.y, group = threadIdx.x / 32, thread = threadIdx.x % 32;
    int first = group * GRAD_OUT_PER_THREAD, first_image = blockIdx.x % IMAGE_TILES * IMAGES, image = thread % IMAGES;
    int split = blockIdx.x / IMAGE_TILES, splits = gridDim.x / IMAGE_TILES;
    float sum[GRAD_OUT_PER_THREAD][TAPS + 1];
#pragma unroll
    for (int o = 0; o < GRAD_OUT_PER_THREAD; o++)
#pragma unroll
        for (int k = 0; k <= TAPS; k++) sum[o][k] = 0.0f;
    bool used = thread < PER_WARP * IMAGES && first_image + image < BATCH;
    x += (size_t)(lane * IN + channel) * HEIGHT * WIDTH * BATCH;
    size_t start = (size_t)(lane * OUT + first) * POSITIONS * BATCH + first_image + image;
    const int units = POOLED_HEIGHT * CHUNKS;
#pragma unroll 1
    for (int unit = units * split / splits; unit < units * (split + 1) / splits; unit++) {
        int row = unit / CHUNKS, chunk = unit % CHUNKS, pair = thread / IMAGES;
        PairGradients now, next;
        int column = (chunk * PAIRS_PER_BLOCK + pair) * 2;
        load_gradients(&now, grad + start, winner + start, first, row, column, used && pair < PAIRS_PER_BLOCK);
        __syncthreads();
        load_band(band, x, row, chunk, first_image, 32 * GROUPS);
        __syncthreads();
#pragma unroll 1
        for (int round = 0; round < ROUNDS; round++) {
            pair = round * PER_WARP + thread / IMAGES;
            bool again = used && pair + PER_WARP < PAIRS_PER_BLOCK;
            column = (chunk * PAIRS_PER_BLOCK + pair + PER_WARP) * 2;
            load_gradients(&next, grad + start, winner + start, first, row, column, again);
            float patch[PATCH_HEIGHT][PATCH_WIDTH];
            patch_of_band(patch, band, pair < PAIRS_PER_BLOCK ? pair : 0, image);
#pragma unroll
            for (int o = 0; o < GRAD_OUT_PER_THREAD; o++)
#pragma unroll
                for (int second = 0; second < 2; second++) {
#pragma unroll
                    for (int k = 0; k < 4; k++) {
                        float value = now.at[o][second] == k ? now.own[o][second] : 0.0f;
#pragma unroll
                        for (int i = 0; i < KERNEL; i++)
#pragma unroll
                            for (int j = 0; j < KERNEL; j++)
                                sum[o][i * KERNEL + j] += value * patch[i + k / 2][j + second * 2 + k % 2];
                    }
                    sum[o][TAPS] += now.at[o][second] < NONE ? now.own[o][second] : 0.0f;
                }
            now = next;
        }
    }
#pragma unroll
    for (int o = 0; o < GRAD_OUT_PER_THREAD; o++) {
        __syncthreads();
#pragma unroll
        for (int k = 0; k <= TAPS; k++) sums[group][k][thread] = sum[o][k];
        __syncthreads();
        if (first + o >= OUT) continue;
        float* part = parts + (size_t)(lane * gridDim.x + blockIdx.x) * NUMBERS;
        for (int k = thread; k <= TAPS; k += 32) {
            float total = 0.0f;
            for (int t = 0; t < 32; t++) total += sums[group][k][t];
            if (k < TAPS)
                part[((first + o) * IN + channel) * TAPS + k] = total;
            else if (channel == 0)
                part[OUT * IN * TAPS + first + o] = total;
        }
    }
}

// Adds the parts up, in their order. Blocks: (numbers, 1, lane).
extern "C" __global__ void __launch_bounds__(THREADS) add_parts(
    const float* parts, float* grad_w, float* grad_b, int count) {
    int lane = blockIdx.z, number = blockIdx.x * THREADS + threadIdx.x;
    if (number >= NUMBERS) return;
    parts += (size_t)lane * count * NUMBERS + number;
    float total = 0.0f;
#pragma unroll 8
    for (int part = 0; part < count; part++) total += parts[(size_t)part * NUMBERS];
    if (number < OUT * IN * TAPS)
        grad_w[lane * OUT * IN * TAPS + number] = total;
    else
        grad_b[lane * OUT + number - OUT * IN * TAPS] = total;
}

// Turns [lane, image, value] into [lane, value, image]. Blocks of 32 x 4 threads: (values, images, lane).
extern "C" __global__ void __launch_bounds__(128) images_last(const float* from, float* to) {
    const int values = OUT * POSITIONS;
    __shared__ float tile[32][33];
    int column = threadIdx.x % 32, value = blockIdx.x * 32, image = blockIdx.y * 32;
    from += (size_t)blockIdx.z * values * BATCH;
    to += (size_t)blockIdx.z * values * BATCH;
    for (int row = threadIdx.x / 32; row < 32; row += 4)
        if (image + row < BATCH && value + column < values) tile[row][column] = from[(image + row) * values + value + column];
    __syncthreads();
    for (int row = threadIdx.x / 32; row < 32; row += 4)
        if (image + column < BATCH && value + row < values) to[(value + row) * BATCH + image + column] = tile[column][row];
}

#define BACK (KERNEL / 2 + 1)  // windows per axis that read a place
#define PLACES_HIGH ((HEIGHT + PAD + 1) / 2 - PAD / 2)  // of 2x2 inputs, counted with the padding
#define PLACES_WIDE ((WIDTH + PAD + 1) / 2 - PAD / 2)

// Gradient of the input. A thread computes two neighbouring places of 2x2 inputs for IN_PER_THREAD channels. Blocks:
// (tile of images and of pairs of places, part of the input channels, lane).
extern "C" __global__ void __launch_bounds__(THREADS) input_gradient(
    const float* w, const float* grad, const unsigned char* winner, float* grad_x) {
    const int stride = PADDED(IN_PER_THREAD), per_tile = THREADS / IMAGES, pairs = (PLACES_WIDE + 1) / 2;
    __shared__ __align__(16) float weights[OUT * TAPS * PADDED(IN_PER_THREAD)];
    int lane = blockIdx.z, first = blockIdx.y * IN_PER_THREAD;
    for (int i = threadIdx.x; i < OUT * TAPS * stride; i += THREADS) {
        int c = first + i % stride, o = i / stride / TAPS, tap = i / stride % TAPS;
        weights[i] = i % stride < IN_PER_THREAD && c < IN ? w[((lane * OUT + o) * IN + c) * TAPS + tap] : 0.0f;
    }
    __syncthreads();
    int image = blockIdx.x % IMAGE_TILES * IMAGES + threadIdx.x % IMAGES;
    int pair = blockIdx.x / IMAGE_TILES * per_tile + threadIdx.x / IMAGES;
    if (threadIdx.x >= per_tile * IMAGES || image >= BATCH || pair >= PLACES_HIGH * pairs) return;
    int row = pair / pairs + PAD / 2, column = pair % pairs * 2 + PAD / 2;
    float sum[IN_PER_THREAD][2][4];  // row and column in the 2x4 inputs
#pragma unroll
    for (int c = 0; c < IN_PER_THREAD; c++)
#pragma unroll
        for (int k = 0; k < 8; k++) sum[c][k / 4][k % 4] = 0.0f;
    size_t start = (size_t)lane * OUT * POSITIONS * BATCH + image;
#pragma unroll 1
    for (int o = 0; o < OUT; o++) {
#pragma unroll
        for (int up = 0; up < BACK; up++) {
            int y = row - up;
            if (y < 0 || y >= POOLED_HEIGHT) continue;
            float value[2][2 * (BACK + 1)];  // gradients of the convolution's outputs that these inputs reach
#pragma unroll
            for (int k = 0; k <= BACK; k++) {
                int z = column + 1 - BACK + k;
                bool there = z >= 0 && z < POOLED_WIDTH;
                size_t from = start + (size_t)(o * POSITIONS + y * POOLED_WIDTH + z) * BATCH;
                float own = there ? grad[from] : 0.0f;
                int at = there ? winner[from] : NONE;
#pragma unroll
                for (int v = 0; v < 4; v++) value[v / 2][2 * k + v % 2] = at == v ? own : 0.0f;
            }
#pragma unroll
            for (int i = 0; i < KERNEL; i++) {
                if (i < 2 * up - 1 || i > 2 * up + 1) continue;
#pragma unroll
                for (int j = 0; j < KERNEL; j++) {
                    float own[IN_PER_THREAD];
                    load_weights<IN_PER_THREAD>(own, weights + (o * TAPS + i * KERNEL + j) * stride);
#pragma unroll
                    for (int v = 0; v < 2; v++)  // the row in the windows
#pragma unroll
                        for (int a = 0; a < 2; a++)  // and in the inputs
                            if (2 * up + a - v == i)
#pragma unroll
                                for (int k = 0; k < 4; k++)  // the column in the inputs: value's starts 2 * (BACK - 1) before
#pragma unroll
                                    for (int c = 0; c < IN_PER_THREAD; c++)
                                        sum[c][a][k] += value[v][k + 2 * (BACK - 1) - j] * own[c];
                }
            }
        }
    }
#pragma unroll
    for (int c = 0; c < IN_PER_THREAD; c++)
#pragma unroll
        for (int k = 0; k < 8; k++) {
            int y = 2 * row + k / 4 - PAD, z = 2 * column + k % 4 - PAD;
            if (first + c < IN && y >= 0 && y < HEIGHT && z >= 0 && z < WIDTH)
                grad_x[((size_t)((lane * IN + first + c) * HEIGHT + y) * WIDTH + z) * BATCH + image] = sum[c][k / 4][k % 4];
        }
}
