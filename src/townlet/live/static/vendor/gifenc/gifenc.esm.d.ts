export type Color = [number, number, number];
export function quantize(rgba: Uint8Array | Uint8ClampedArray, maxColors: number, options?: { format?: 'rgb565' | 'rgb444' }): Color[];
export function nearestColorIndex(palette: Color[], color: Color): number;
export function GIFEncoder(options?: { auto?: boolean, initialCapacity?: number }): {
  writeFrame(index: Uint8Array, width: number, height: number, options?: {
    palette?: Color[], delay?: number, repeat?: number, transparent?: boolean, transparentIndex?: number, dispose?: number,
  }): void;
  finish(): void;
  bytes(): Uint8Array<ArrayBuffer>;
};
