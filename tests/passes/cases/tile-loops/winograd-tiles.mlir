// Tiles of 2x2 results by Winograd: the last ones end where the image ends, the last panel is short.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"u">, #pg.bytes<"bias">] {
  ^bb0(%x: tensor<1x5x6x2xf32>, %u: tensor<16x2x5xf32>, %bias: tensor<5xf32>):
    %p = tile.pack %u : tensor<16x2x5xf32> -> tensor<16x2x5xf32, #tile.layout<affine_map<(d0, d1, d2) -> ((d2 floordiv 4), d0, d1, (d2 mod 4))>, #pg.ints[2, 16, 2, 4]>>
    %y = tile.winograd %x, %p : tensor<1x5x6x2xf32>, tensor<16x2x5xf32, #tile.layout<affine_map<(d0, d1, d2) -> ((d2 floordiv 4), d0, d1, (d2 mod 4))>, #pg.ints[2, 16, 2, 4]>> extras(%bias : tensor<5xf32>) domain [1, 3, 4, 5] offset [0, 0] size 2 : i64 tiles 3 : i64 extra_maps [affine_map<(d0, d1, d2, d3) -> (d3)>] schedule <vector 3, vectors 1, rows -1, block 2, chunk 64, width 4> finish {
    ^bb0(%0: f32, %1: f32):
      %2 = arith.addf %0, %1 : f32
      tile.yield %2 : f32
    } -> tensor<1x3x4x5xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x3x4x5xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"u">, #pg.bytes<"bias">] {
  ^bb0(%x: tensor<1x5x6x2xf32>, %u: tensor<16x2x5xf32>, %bias: tensor<5xf32>):
    %p = tile.kernel chunks 1 : i64 inplace [] ins(%u : tensor<16x2x5xf32>) {
    ^bb0(%0: index, %1: memref<160xf32>, %2: memref<256xf32>):
      %3 = arith.constant 0 : index
      %4 = arith.constant 32 : index
      %5 = arith.constant 1 : index
      %6 = arith.constant 5 : index
      %7 = arith.constant 4 : index
      scf.for %8 = %3 to %4 step %5 {
        %9 = arith.muli %8, %6 : index
        %10 = vector.load %1[%9] : memref<160xf32>, vector<4xf32>
        %11 = arith.muli %8, %7 : index
        vector.store %10, %2[%11] : memref<256xf32>, vector<4xf32>
      }
      %12 = arith.constant 128 : index
      scf.for %13 = %3 to %4 step %5 {
        %14 = arith.muli %13, %6 : index
        %15 = arith.addi %14, %7 : index
        %16 = memref.load %1[%15] : memref<160xf32>
        %17 = arith.muli %13, %7 : index
        %18 = arith.addi %17, %12 : index
        memref.store %16, %2[%18] : memref<256xf32>
      }
      %19 = arith.constant 0.000000e+00 : f32
      %20 = arith.constant 3 : index
      %21 = arith.constant 129 : index
      scf.for %22 = %3 to %4 step %5 {
        %23 = arith.muli %22, %7 : index
        scf.for %24 = %3 to %20 step %5 {
          %25 = arith.addi %23, %24 : index
          %26 = arith.addi %25, %21 : index
          memref.store %19, %2[%26] : memref<256xf32>
        }
      }
    } -> tensor<16x2x5xf32, #tile.layout<affine_map<(d0, d1, d2) -> ((d2 floordiv 4), d0, d1, (d2 mod 4))>, #pg.ints[2, 16, 2, 4]>>
    %y = tile.kernel chunks 1 : i64 inplace [] ins(%x, %p, %bias : tensor<1x5x6x2xf32>, tensor<16x2x5xf32, #tile.layout<affine_map<(d0, d1, d2) -> ((d2 floordiv 4), d0, d1, (d2 mod 4))>, #pg.ints[2, 16, 2, 4]>>, tensor<5xf32>) {
    ^bb0(%0: index, %1: memref<60xf32>, %2: memref<256xf32>, %3: memref<5xf32>, %4: memref<60xf32>):
      %5 = memref.alloca() : memref<256xf32>
      %6 = memref.alloca() : memref<768xf32>
      %7 = arith.constant 0 : index
      %8 = arith.constant 2 : index
      %9 = arith.constant 1 : index
      %10 = arith.constant 3 : index
      %11 = arith.constant 12 : index
      %12 = arith.constant 4 : index
      %13 = arith.constant 6 : index
      %14 = arith.constant 14 : index
      %15 = arith.constant 16 : index
      %16 = arith.constant 18 : index
      %17 = arith.constant 24 : index
      %18 = arith.constant 26 : index
      %19 = arith.constant 28 : index
      %20 = arith.constant 30 : index
      %21 = arith.constant 36 : index
      %22 = arith.constant 38 : index
      %23 = arith.constant 40 : index
      %24 = arith.constant 42 : index
      %25 = arith.constant 48 : index
      %26 = arith.constant 96 : index
      %27 = arith.constant 144 : index
      %28 = arith.constant 192 : index
      %29 = arith.constant 240 : index
      %30 = arith.constant 288 : index
      %31 = arith.constant 336 : index
      %32 = arith.constant 384 : index
      %33 = arith.constant 432 : index
      %34 = arith.constant 480 : index
      %35 = arith.constant 528 : index
      %36 = arith.constant 576 : index
      %37 = arith.constant 624 : index
      %38 = arith.constant 672 : index
      %39 = arith.constant 720 : index
      %40 = arith.constant 0.000000e+00 : f32
      %41 = vector.broadcast %40 : f32 to vector<4xf32>
      %42 = arith.constant 8 : index
      %43 = arith.constant 32 : index
      %44 = arith.constant -3 : index
      %45 = arith.constant 64 : index
      %46 = arith.constant 80 : index
      %47 = arith.constant 112 : index
      %48 = arith.constant 128 : index
      %49 = arith.constant 160 : index
      %50 = arith.constant 176 : index
      %51 = arith.constant 208 : index
      %52 = arith.constant 224 : index
      %53 = arith.constant 20 : index
      %54 = arith.constant 10 : index
      %55 = arith.constant 5 : index
      %56 = arith.constant 25 : index
      %57 = arith.constant 136 : index
      %58 = arith.constant 140 : index
      %59 = memref.alloca() : memref<4xf32>
      %60 = memref.alloca() : memref<4xf32>
      %61 = memref.alloca() : memref<4xf32>
      %62 = memref.alloca() : memref<4xf32>
      %63 = arith.constant 9 : index
      %64 = memref.alloca() : memref<4xf32>
      %65 = memref.alloca() : memref<4xf32>
      %66 = memref.alloca() : memref<4xf32>
      %67 = memref.alloca() : memref<4xf32>
      %68 = arith.constant 29 : index
      scf.for %69 = %7 to %8 step %9 {
        %70 = arith.muli %69, %10 : index
        scf.for %71 = %7 to %10 step %9 {
          %72 = arith.addi %70, %71 : index
          %73 = arith.minsi %72, %10 : index
          %74 = arith.divsi %73, %8 : index
          %75 = arith.remsi %73, %8 : index
          %76 = arith.muli %74, %8 : index
          %77 = arith.minsi %76, %9 : index
          %78 = arith.muli %77, %11 : index
          %79 = arith.muli %75, %12 : index
          %80 = arith.addi %78, %79 : index
          %81 = vector.load %1[%80] : memref<60xf32>, vector<2xf32>
          %82 = arith.addi %80, %8 : index
          %83 = vector.load %1[%82] : memref<60xf32>, vector<2xf32>
          %84 = arith.addi %80, %12 : index
          %85 = vector.load %1[%84] : memref<60xf32>, vector<2xf32>
          %86 = arith.addi %80, %13 : index
          %87 = vector.load %1[%86] : memref<60xf32>, vector<2xf32>
          %88 = arith.addi %80, %11 : index
          %89 = vector.load %1[%88] : memref<60xf32>, vector<2xf32>
          %90 = arith.addi %80, %14 : index
          %91 = vector.load %1[%90] : memref<60xf32>, vector<2xf32>
          %92 = arith.addi %80, %15 : index
          %93 = vector.load %1[%92] : memref<60xf32>, vector<2xf32>
          %94 = arith.addi %80, %16 : index
          %95 = vector.load %1[%94] : memref<60xf32>, vector<2xf32>
          %96 = arith.addi %80, %17 : index
          %97 = vector.load %1[%96] : memref<60xf32>, vector<2xf32>
          %98 = arith.addi %80, %18 : index
          %99 = vector.load %1[%98] : memref<60xf32>, vector<2xf32>
          %100 = arith.addi %80, %19 : index
          %101 = vector.load %1[%100] : memref<60xf32>, vector<2xf32>
          %102 = arith.addi %80, %20 : index
          %103 = vector.load %1[%102] : memref<60xf32>, vector<2xf32>
          %104 = arith.addi %80, %21 : index
          %105 = vector.load %1[%104] : memref<60xf32>, vector<2xf32>
          %106 = arith.addi %80, %22 : index
          %107 = vector.load %1[%106] : memref<60xf32>, vector<2xf32>
          %108 = arith.addi %80, %23 : index
          %109 = vector.load %1[%108] : memref<60xf32>, vector<2xf32>
          %110 = arith.addi %80, %24 : index
          %111 = vector.load %1[%110] : memref<60xf32>, vector<2xf32>
          %112 = arith.addf %97, %89 : vector<2xf32>
          %113 = arith.subf %97, %89 : vector<2xf32>
          %114 = arith.subf %81, %97 : vector<2xf32>
          %115 = arith.subf %89, %105 : vector<2xf32>
          %116 = arith.addf %99, %91 : vector<2xf32>
          %117 = arith.subf %99, %91 : vector<2xf32>
          %118 = arith.subf %83, %99 : vector<2xf32>
          %119 = arith.subf %91, %107 : vector<2xf32>
          %120 = arith.addf %101, %93 : vector<2xf32>
          %121 = arith.subf %101, %93 : vector<2xf32>
          %122 = arith.subf %85, %101 : vector<2xf32>
          %123 = arith.subf %93, %109 : vector<2xf32>
          %124 = arith.addf %103, %95 : vector<2xf32>
          %125 = arith.subf %103, %95 : vector<2xf32>
          %126 = arith.subf %87, %103 : vector<2xf32>
          %127 = arith.subf %95, %111 : vector<2xf32>
          %128 = arith.addf %122, %118 : vector<2xf32>
          %129 = arith.subf %122, %118 : vector<2xf32>
          %130 = arith.subf %114, %122 : vector<2xf32>
          %131 = arith.subf %118, %126 : vector<2xf32>
          %132 = arith.addf %120, %116 : vector<2xf32>
          %133 = arith.subf %120, %116 : vector<2xf32>
          %134 = arith.subf %112, %120 : vector<2xf32>
          %135 = arith.subf %116, %124 : vector<2xf32>
          %136 = arith.addf %121, %117 : vector<2xf32>
          %137 = arith.subf %121, %117 : vector<2xf32>
          %138 = arith.subf %113, %121 : vector<2xf32>
          %139 = arith.subf %117, %125 : vector<2xf32>
          %140 = arith.addf %123, %119 : vector<2xf32>
          %141 = arith.subf %123, %119 : vector<2xf32>
          %142 = arith.subf %115, %123 : vector<2xf32>
          %143 = arith.subf %119, %127 : vector<2xf32>
          %144 = arith.muli %71, %15 : index
          vector.store %130, %6[%144] : memref<768xf32>, vector<2xf32>
          %145 = arith.addi %144, %25 : index
          vector.store %128, %6[%145] : memref<768xf32>, vector<2xf32>
          %146 = arith.addi %144, %26 : index
          vector.store %129, %6[%146] : memref<768xf32>, vector<2xf32>
          %147 = arith.addi %144, %27 : index
          vector.store %131, %6[%147] : memref<768xf32>, vector<2xf32>
          %148 = arith.addi %144, %28 : index
          vector.store %134, %6[%148] : memref<768xf32>, vector<2xf32>
          %149 = arith.addi %144, %29 : index
          vector.store %132, %6[%149] : memref<768xf32>, vector<2xf32>
          %150 = arith.addi %144, %30 : index
          vector.store %133, %6[%150] : memref<768xf32>, vector<2xf32>
          %151 = arith.addi %144, %31 : index
          vector.store %135, %6[%151] : memref<768xf32>, vector<2xf32>
          %152 = arith.addi %144, %32 : index
          vector.store %138, %6[%152] : memref<768xf32>, vector<2xf32>
          %153 = arith.addi %144, %33 : index
          vector.store %136, %6[%153] : memref<768xf32>, vector<2xf32>
          %154 = arith.addi %144, %34 : index
          vector.store %137, %6[%154] : memref<768xf32>, vector<2xf32>
          %155 = arith.addi %144, %35 : index
          vector.store %139, %6[%155] : memref<768xf32>, vector<2xf32>
          %156 = arith.addi %144, %36 : index
          vector.store %142, %6[%156] : memref<768xf32>, vector<2xf32>
          %157 = arith.addi %144, %37 : index
          vector.store %140, %6[%157] : memref<768xf32>, vector<2xf32>
          %158 = arith.addi %144, %38 : index
          vector.store %141, %6[%158] : memref<768xf32>, vector<2xf32>
          %159 = arith.addi %144, %39 : index
          vector.store %143, %6[%159] : memref<768xf32>, vector<2xf32>
        }
        scf.for %160 = %7 to %15 step %9 {
          %161 = arith.muli %160, %42 : index
          %162 = arith.muli %160, %25 : index
          %163, %164 = scf.for %165 = %7 to %8 step %9 iter_args(%166 = %41, %167 = %41) -> (vector<4xf32>, vector<4xf32>) {
            %168 = arith.muli %165, %8 : index
            %169 = arith.addi %161, %168 : index
            %170 = arith.addi %169, %42 : index
            tile.prefetch %2[%170] : memref<256xf32>
            %171 = arith.addi %162, %165 : index
            %172 = memref.load %6[%171] : memref<768xf32>
            %173 = vector.broadcast %172 : f32 to vector<4xf32>
            %174 = arith.muli %165, %12 : index
            %175 = arith.addi %161, %174 : index
            %176 = vector.load %2[%175] : memref<256xf32>, vector<4xf32>
            %177 = vector.fma %173, %176, %166 : vector<4xf32>
            %178 = arith.addi %171, %15 : index
            %179 = memref.load %6[%178] : memref<768xf32>
            %180 = vector.broadcast %179 : f32 to vector<4xf32>
            %181 = vector.fma %180, %176, %167 : vector<4xf32>
            scf.yield %177, %181 : vector<4xf32>, vector<4xf32>
          }
          %182 = arith.muli %160, %15 : index
          vector.store %163, %5[%182] : memref<256xf32>, vector<4xf32>
          %183 = arith.addi %182, %12 : index
          vector.store %164, %5[%183] : memref<256xf32>, vector<4xf32>
          %184 = scf.for %185 = %7 to %8 step %9 iter_args(%186 = %41) -> (vector<4xf32>) {
            %187 = arith.muli %185, %8 : index
            %188 = arith.addi %161, %187 : index
            %189 = arith.addi %188, %11 : index
            tile.prefetch %2[%189] : memref<256xf32>
            %190 = arith.addi %162, %185 : index
            %191 = arith.addi %190, %43 : index
            %192 = memref.load %6[%191] : memref<768xf32>
            %193 = vector.broadcast %192 : f32 to vector<4xf32>
            %194 = arith.muli %185, %12 : index
            %195 = arith.addi %161, %194 : index
            %196 = vector.load %2[%195] : memref<256xf32>, vector<4xf32>
            %197 = vector.fma %193, %196, %186 : vector<4xf32>
            scf.yield %197 : vector<4xf32>
          }
          %198 = arith.addi %182, %42 : index
          vector.store %184, %5[%198] : memref<256xf32>, vector<4xf32>
        }
        %199 = arith.muli %69, %44 : index
        %200 = arith.addi %199, %12 : index
        %201 = arith.minsi %200, %10 : index
        scf.for %202 = %7 to %201 step %9 {
          %203 = arith.addi %70, %202 : index
          %204 = arith.divsi %203, %8 : index
          %205 = arith.remsi %203, %8 : index
          %206 = arith.muli %204, %8 : index
          %207 = arith.minsi %206, %9 : index
          %208 = arith.muli %202, %12 : index
          %209 = vector.load %5[%208] : memref<256xf32>, vector<4xf32>
          %210 = arith.addi %208, %15 : index
          %211 = vector.load %5[%210] : memref<256xf32>, vector<4xf32>
          %212 = arith.addi %208, %43 : index
          %213 = vector.load %5[%212] : memref<256xf32>, vector<4xf32>
          %214 = arith.addi %208, %25 : index
          %215 = vector.load %5[%214] : memref<256xf32>, vector<4xf32>
          %216 = arith.addi %208, %45 : index
          %217 = vector.load %5[%216] : memref<256xf32>, vector<4xf32>
          %218 = arith.addi %208, %46 : index
          %219 = vector.load %5[%218] : memref<256xf32>, vector<4xf32>
          %220 = arith.addi %208, %26 : index
          %221 = vector.load %5[%220] : memref<256xf32>, vector<4xf32>
          %222 = arith.addi %208, %47 : index
          %223 = vector.load %5[%222] : memref<256xf32>, vector<4xf32>
          %224 = arith.addi %208, %48 : index
          %225 = vector.load %5[%224] : memref<256xf32>, vector<4xf32>
          %226 = arith.addi %208, %27 : index
          %227 = vector.load %5[%226] : memref<256xf32>, vector<4xf32>
          %228 = arith.addi %208, %49 : index
          %229 = vector.load %5[%228] : memref<256xf32>, vector<4xf32>
          %230 = arith.addi %208, %50 : index
          %231 = vector.load %5[%230] : memref<256xf32>, vector<4xf32>
          %232 = arith.addi %208, %28 : index
          %233 = vector.load %5[%232] : memref<256xf32>, vector<4xf32>
          %234 = arith.addi %208, %51 : index
          %235 = vector.load %5[%234] : memref<256xf32>, vector<4xf32>
          %236 = arith.addi %208, %52 : index
          %237 = vector.load %5[%236] : memref<256xf32>, vector<4xf32>
          %238 = arith.addi %208, %29 : index
          %239 = vector.load %5[%238] : memref<256xf32>, vector<4xf32>
          %240 = arith.addf %217, %225 : vector<4xf32>
          %241 = arith.subf %217, %225 : vector<4xf32>
          %242 = arith.addf %209, %240 : vector<4xf32>
          %243 = arith.subf %241, %233 : vector<4xf32>
          %244 = arith.addf %219, %227 : vector<4xf32>
          %245 = arith.subf %219, %227 : vector<4xf32>
          %246 = arith.addf %211, %244 : vector<4xf32>
          %247 = arith.subf %245, %235 : vector<4xf32>
          %248 = arith.addf %221, %229 : vector<4xf32>
          %249 = arith.subf %221, %229 : vector<4xf32>
          %250 = arith.addf %213, %248 : vector<4xf32>
          %251 = arith.subf %249, %237 : vector<4xf32>
          %252 = arith.addf %223, %231 : vector<4xf32>
          %253 = arith.subf %223, %231 : vector<4xf32>
          %254 = arith.addf %215, %252 : vector<4xf32>
          %255 = arith.subf %253, %239 : vector<4xf32>
          %256 = arith.addf %246, %250 : vector<4xf32>
          %257 = arith.subf %246, %250 : vector<4xf32>
          %258 = arith.addf %242, %256 : vector<4xf32>
          %259 = arith.subf %257, %254 : vector<4xf32>
          %260 = arith.addf %247, %251 : vector<4xf32>
          %261 = arith.subf %247, %251 : vector<4xf32>
          %262 = arith.addf %243, %260 : vector<4xf32>
          %263 = arith.subf %261, %255 : vector<4xf32>
          %264 = arith.cmpi sge, %207, %206 : index
          %265 = arith.muli %207, %53 : index
          %266 = arith.muli %205, %54 : index
          %267 = arith.addi %265, %266 : index
          %268 = arith.addi %267, %55 : index
          scf.if %264 {
            %269 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
            %270 = arith.addf %258, %269 : vector<4xf32>
            vector.store %270, %4[%267] : memref<60xf32>, vector<4xf32>
            %271 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
            %272 = arith.addf %259, %271 : vector<4xf32>
            vector.store %272, %4[%268] : memref<60xf32>, vector<4xf32>
          }
          %273 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
          %274 = arith.addf %262, %273 : vector<4xf32>
          %275 = arith.addi %267, %53 : index
          vector.store %274, %4[%275] : memref<60xf32>, vector<4xf32>
          %276 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
          %277 = arith.addf %263, %276 : vector<4xf32>
          %278 = arith.addi %267, %56 : index
          vector.store %277, %4[%278] : memref<60xf32>, vector<4xf32>
        }
        scf.for %279 = %7 to %15 step %9 {
          %280 = arith.muli %279, %42 : index
          %281 = arith.muli %279, %25 : index
          %282, %283 = scf.for %284 = %7 to %8 step %9 iter_args(%285 = %41, %286 = %41) -> (vector<4xf32>, vector<4xf32>) {
            %287 = arith.muli %284, %8 : index
            %288 = arith.addi %280, %287 : index
            %289 = arith.addi %288, %57 : index
            tile.prefetch %2[%289] : memref<256xf32>
            %290 = arith.addi %281, %284 : index
            %291 = memref.load %6[%290] : memref<768xf32>
            %292 = vector.broadcast %291 : f32 to vector<4xf32>
            %293 = arith.muli %284, %12 : index
            %294 = arith.addi %280, %293 : index
            %295 = arith.addi %294, %48 : index
            %296 = vector.load %2[%295] : memref<256xf32>, vector<4xf32>
            %297 = vector.fma %292, %296, %285 : vector<4xf32>
            %298 = arith.addi %290, %15 : index
            %299 = memref.load %6[%298] : memref<768xf32>
            %300 = vector.broadcast %299 : f32 to vector<4xf32>
            %301 = vector.fma %300, %296, %286 : vector<4xf32>
            scf.yield %297, %301 : vector<4xf32>, vector<4xf32>
          }
          %302 = arith.muli %279, %15 : index
          vector.store %282, %5[%302] : memref<256xf32>, vector<4xf32>
          %303 = arith.addi %302, %12 : index
          vector.store %283, %5[%303] : memref<256xf32>, vector<4xf32>
          %304 = scf.for %305 = %7 to %8 step %9 iter_args(%306 = %41) -> (vector<4xf32>) {
            %307 = arith.muli %305, %8 : index
            %308 = arith.addi %280, %307 : index
            %309 = arith.addi %308, %58 : index
            tile.prefetch %2[%309] : memref<256xf32>
            %310 = arith.addi %281, %305 : index
            %311 = arith.addi %310, %43 : index
            %312 = memref.load %6[%311] : memref<768xf32>
            %313 = vector.broadcast %312 : f32 to vector<4xf32>
            %314 = arith.muli %305, %12 : index
            %315 = arith.addi %280, %314 : index
            %316 = arith.addi %315, %48 : index
            %317 = vector.load %2[%316] : memref<256xf32>, vector<4xf32>
            %318 = vector.fma %313, %317, %306 : vector<4xf32>
            scf.yield %318 : vector<4xf32>
          }
          %319 = arith.addi %302, %42 : index
          vector.store %304, %5[%319] : memref<256xf32>, vector<4xf32>
        }
        scf.for %320 = %7 to %201 step %9 {
          %321 = arith.addi %70, %320 : index
          %322 = arith.divsi %321, %8 : index
          %323 = arith.remsi %321, %8 : index
          %324 = arith.muli %322, %8 : index
          %325 = arith.minsi %324, %9 : index
          %326 = arith.muli %320, %12 : index
          %327 = vector.load %5[%326] : memref<256xf32>, vector<4xf32>
          %328 = arith.addi %326, %15 : index
          %329 = vector.load %5[%328] : memref<256xf32>, vector<4xf32>
          %330 = arith.addi %326, %43 : index
          %331 = vector.load %5[%330] : memref<256xf32>, vector<4xf32>
          %332 = arith.addi %326, %25 : index
          %333 = vector.load %5[%332] : memref<256xf32>, vector<4xf32>
          %334 = arith.addi %326, %45 : index
          %335 = vector.load %5[%334] : memref<256xf32>, vector<4xf32>
          %336 = arith.addi %326, %46 : index
          %337 = vector.load %5[%336] : memref<256xf32>, vector<4xf32>
          %338 = arith.addi %326, %26 : index
          %339 = vector.load %5[%338] : memref<256xf32>, vector<4xf32>
          %340 = arith.addi %326, %47 : index
          %341 = vector.load %5[%340] : memref<256xf32>, vector<4xf32>
          %342 = arith.addi %326, %48 : index
          %343 = vector.load %5[%342] : memref<256xf32>, vector<4xf32>
          %344 = arith.addi %326, %27 : index
          %345 = vector.load %5[%344] : memref<256xf32>, vector<4xf32>
          %346 = arith.addi %326, %49 : index
          %347 = vector.load %5[%346] : memref<256xf32>, vector<4xf32>
          %348 = arith.addi %326, %50 : index
          %349 = vector.load %5[%348] : memref<256xf32>, vector<4xf32>
          %350 = arith.addi %326, %28 : index
          %351 = vector.load %5[%350] : memref<256xf32>, vector<4xf32>
          %352 = arith.addi %326, %51 : index
          %353 = vector.load %5[%352] : memref<256xf32>, vector<4xf32>
          %354 = arith.addi %326, %52 : index
          %355 = vector.load %5[%354] : memref<256xf32>, vector<4xf32>
          %356 = arith.addi %326, %29 : index
          %357 = vector.load %5[%356] : memref<256xf32>, vector<4xf32>
          %358 = arith.addf %335, %343 : vector<4xf32>
          %359 = arith.subf %335, %343 : vector<4xf32>
          %360 = arith.addf %327, %358 : vector<4xf32>
          %361 = arith.subf %359, %351 : vector<4xf32>
          %362 = arith.addf %337, %345 : vector<4xf32>
          %363 = arith.subf %337, %345 : vector<4xf32>
          %364 = arith.addf %329, %362 : vector<4xf32>
          %365 = arith.subf %363, %353 : vector<4xf32>
          %366 = arith.addf %339, %347 : vector<4xf32>
          %367 = arith.subf %339, %347 : vector<4xf32>
          %368 = arith.addf %331, %366 : vector<4xf32>
          %369 = arith.subf %367, %355 : vector<4xf32>
          %370 = arith.addf %341, %349 : vector<4xf32>
          %371 = arith.subf %341, %349 : vector<4xf32>
          %372 = arith.addf %333, %370 : vector<4xf32>
          %373 = arith.subf %371, %357 : vector<4xf32>
          %374 = arith.addf %364, %368 : vector<4xf32>
          %375 = arith.subf %364, %368 : vector<4xf32>
          %376 = arith.addf %360, %374 : vector<4xf32>
          %377 = arith.subf %375, %372 : vector<4xf32>
          %378 = arith.addf %365, %369 : vector<4xf32>
          %379 = arith.subf %365, %369 : vector<4xf32>
          %380 = arith.addf %361, %378 : vector<4xf32>
          %381 = arith.subf %379, %373 : vector<4xf32>
          %382 = arith.cmpi sge, %325, %324 : index
          %383 = arith.muli %325, %53 : index
          %384 = arith.muli %323, %54 : index
          %385 = arith.addi %383, %384 : index
          scf.if %382 {
            scf.for %386 = %7 to %9 step %9 {
              %387 = arith.addi %386, %12 : index
              %388 = memref.load %3[%387] : memref<5xf32>
              memref.store %388, %59[%386] : memref<4xf32>
            }
            %389 = vector.load %59[%7] : memref<4xf32>, vector<4xf32>
            %390 = arith.addf %376, %389 : vector<4xf32>
            vector.store %390, %60[%7] : memref<4xf32>, vector<4xf32>
            scf.for %391 = %7 to %9 step %9 {
              %392 = memref.load %60[%391] : memref<4xf32>
              %393 = arith.addi %385, %391 : index
              %394 = arith.addi %393, %12 : index
              memref.store %392, %4[%394] : memref<60xf32>
            }
            scf.for %395 = %7 to %9 step %9 {
              %396 = arith.addi %395, %12 : index
              %397 = memref.load %3[%396] : memref<5xf32>
              memref.store %397, %61[%395] : memref<4xf32>
            }
            %398 = vector.load %61[%7] : memref<4xf32>, vector<4xf32>
            %399 = arith.addf %377, %398 : vector<4xf32>
            vector.store %399, %62[%7] : memref<4xf32>, vector<4xf32>
            scf.for %400 = %7 to %9 step %9 {
              %401 = memref.load %62[%400] : memref<4xf32>
              %402 = arith.addi %385, %400 : index
              %403 = arith.addi %402, %63 : index
              memref.store %401, %4[%403] : memref<60xf32>
            }
          }
          scf.for %404 = %7 to %9 step %9 {
            %405 = arith.addi %404, %12 : index
            %406 = memref.load %3[%405] : memref<5xf32>
            memref.store %406, %64[%404] : memref<4xf32>
          }
          %407 = vector.load %64[%7] : memref<4xf32>, vector<4xf32>
          %408 = arith.addf %380, %407 : vector<4xf32>
          vector.store %408, %65[%7] : memref<4xf32>, vector<4xf32>
          scf.for %409 = %7 to %9 step %9 {
            %410 = memref.load %65[%409] : memref<4xf32>
            %411 = arith.addi %385, %409 : index
            %412 = arith.addi %411, %17 : index
            memref.store %410, %4[%412] : memref<60xf32>
          }
          scf.for %413 = %7 to %9 step %9 {
            %414 = arith.addi %413, %12 : index
            %415 = memref.load %3[%414] : memref<5xf32>
            memref.store %415, %66[%413] : memref<4xf32>
          }
          %416 = vector.load %66[%7] : memref<4xf32>, vector<4xf32>
          %417 = arith.addf %381, %416 : vector<4xf32>
          vector.store %417, %67[%7] : memref<4xf32>, vector<4xf32>
          scf.for %418 = %7 to %9 step %9 {
            %419 = memref.load %67[%418] : memref<4xf32>
            %420 = arith.addi %385, %418 : index
            %421 = arith.addi %420, %68 : index
            memref.store %419, %4[%421] : memref<60xf32>
          }
        }
      }
    } -> tensor<1x3x4x5xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x3x4x5xf32>
  }
}
