// A convolution with stride 1, 2x2 max pooling and ReLU of stacked lanes with few channels, in 32-bit arithmetic.
// Arrays end in the images of a batch, [lane, channel, row, column, image], so that neighbouring threads read
// neighbouring numbers. A thread computes two neighbouring windows of one image: a weight then comes from shared memory
// once for eight products. Compiled for one layer: IN, OUT, HEIGHT, WIDTH, KERNEL, PAD, BATCH, and for the work of a
// thread and a block: OUT_PER_THREAD, GRAD_OUT_PER_THREAD, IN_PER_THREAD, PAIRS_PER_BLOCK and THREADS.

#define TAPS (KERNEL * KERNEL)
#define PATCH_HEIGHT (KERNEL + 1)  // the inputs of two windows of 2x2 outputs
#define PATCH_WIDTH (KERNEL + 3)
#define POOLED_HEIGHT ((HEIGHT + 2 * PAD - KERNEL + 1) / 2)
#define POOLED_WIDTH ((WIDTH + 2 * PAD - KERNEL + 1) / 2)
#define POSITIONS (POOLED_HEIGHT * POOLED_WIDTH)
#define PAIRS ((POOLED_WIDTH + 1) / 2)  // of windows in a row; the last one may have only one
#define NONE 4  // the winner of a window without a positive value
#define IMAGES (BATCH < 32 ? BATCH : 32)  // side by side in a tile
#define IMAGE_TILES ((BATCH + IMAGES - 1) / IMAGES)
#define PADDED(n) (((n) + 3) / 4 * 4)  // weights are read four at a time

// Reads `count` weights that begin on a boundary of 16 bytes.
template <int count>
__device__ inline void load_weights(float* own, const float* from) {
#pragma unroll
    for (int k = 0; k + 4 <= count; k += 4) {
        float4 four = *(const float4*)(from + k);
        own[k] = four.x, own[k + 1] = four.y, own[k + 2] = four.z, own[k + 3] = four.w;
    }
    if (count % 4 > 1) {
        float2 two = *(const float2*)(from + count / 4 * 4);
        own[count / 4 * 4] = two.x, own[count / 4 * 4 + 1] = two.y;
    }
    if (count % 2) own[count - 1] = from[count - 1];
}

// The inputs of two windows of one channel: x points to the channel's first number of an image.
__device__ inline void load_patch(float patch[PATCH_HEIGHT][PATCH_WIDTH], const float* x, int row, int column) {
    x += (2 * row - PAD) * WIDTH * BATCH + (2 * column - PAD) * BATCH;
#pragma unroll
    for (int i = 0; i < PATCH_HEIGHT; i++)
#pragma unroll
        for (int j = 0; j < PATCH_WIDTH; j++) {
            int y = 2 * row + i - PAD, z = 2 * column + j - PAD;
            bool within = PAD == 0 || (y >= 0 && y < HEIGHT && z >= 0);
            if (PAD || POOLED_WIDTH % 2) within = within && z < WIDTH;
            patch[i][j] = within ? x[(i * WIDTH + j) * BATCH] : 0.0f;
        }
}

// Blocks: (tile of images and of pairs of windows, part of the output channels, lane). winner may be null.
extern "C" __global__ void __launch_bounds__(THREADS) forward(
    const float* x, const float* w, const float* b, float* y, unsigned char* winner) {
    const int stride = PADDED(OUT_PER_THREAD), per_tile = THREADS / IMAGES;
    __shared__ __align__(16) float weights[IN * TAPS * PADDED(OUT_PER_THREAD)];
    int lane = blockIdx.z, first = blockIdx.y * OUT_PER_THREAD;
    for (int i = threadIdx.x; i < IN * TAPS * stride; i += THREADS) {
        int o = first + i % stride;
        weights[i] = i % stride < OUT_PER_THREAD && o < OUT ? w[(lane * OUT + o) * IN * TAPS + i / stride] : 0.0f;
    }
    __syncthreads();
    int image = blockIdx.x % IMAGE_TILES * IMAGES + threadIdx.x % IMAGES;
    int pair = blockIdx.x / IMAGE_TILES * per_tile + threadIdx.x / IMAGES;
    if (threadIdx.x >= per_tile * IMAGES || image >= BATCH || pair >= POOLED_HEIGHT * PAIRS) return;
    int row = pair / PAIRS, column = pair % PAIRS * 2;
    float sum[OUT_PER_THREAD][8];
#pragma unroll
    for (int o = 0; o < OUT_PER_THREAD; o++) {
        float bias = first + o < OUT ? b[lane * OUT + first + o] : 0.0f;
#pragma unroll
        for (int k = 0; k < 8; k++) sum[o][k] = bias;
    }
    x += (size_t)lane * IN * HEIGHT * WIDTH * BATCH + image;
#pragma unroll 1
    for (int c = 0; c < IN; c++) {
        float patch[PATCH_HEIGHT][PATCH_WIDTH];
        load_patch(patch, x + (size_t)c * HEIGHT * WIDTH * BATCH, row, column);
#pragma unroll
        for (int i = 0; i < KERNEL; i++)
#pragma unroll
            for (int j = 0; j < KERNEL; j++) {
                float own[OUT_PER_THREAD];
                load_weights<OUT_PER_THREAD>(own, weights + (c * TAPS + i * KERNEL + j) * stride);
#pragma unroll
                for (int o = 0; o < OUT_PER_THREAD; o++)
#pragma unroll
                    for (int k = 0; k < 8; k++)  // window, row and column in it
                        sum[o][k] += patch[i + k / 2 % 2][j + k / 4 * 2 + k % 2] * own[o];
            }
    }
#pragma unroll
    for (int o = 0; o < OUT_PER_THREAD; o++) {
#pragma unroll
        for (int second = 0; second < 2; second++) {
            if (first + o >= OUT || column + second >= POOLED_WIDTH) continue;
            float best = sum[o][4 * second];
            int at = 0;
#pragma unroll
            for (int k = 1; k < 4; k++) {
                float other = sum[o][4 * second + k];
                if (other > best || other != other) best = other, at = k;
            }
            bool positive = best > 0.0f || best != best;  // not a number stays so
            size_t to = ((size_t)(lane * OUT + first + o) * POSITIONS + row * POOLED_WIDTH + column + second) * BATCH + image;
            y[to] = positive ? best : 0.0f;
            if (winner) winner[to] = positive ? at : NONE;
        }
    }
}
